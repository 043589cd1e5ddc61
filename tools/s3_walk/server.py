"""MinIO as a child process: a bucket over boto3, its users over its admin API, and an issuer of identities that it trusts."""

import base64
import contextlib
import http.server
import json
import os
import re
import struct
import threading
import time
import urllib.error
import urllib.request

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from processes import Process, free_port

REGION = "us-east-1"
ROOT_USER, ROOT_SECRET = "trawl-root", "only-of-this-test"
BUCKET = "trawl"
# MinIO dates an object as this header says, for its own replication.
MODIFIED = "X-Minio-Source-Mtime"


class Minio(Process):
    bucket_url, secrets = f"s3://{BUCKET}", (ROOT_SECRET,)

    def __init__(self, program, folder, issuer):
        self.address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.address}"
        # A folder of its drive is a bucket.
        (folder / "drive" / BUCKET).mkdir(parents=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "MINIO_"))}
        environment |= {"MINIO_ROOT_USER": ROOT_USER, "MINIO_ROOT_PASSWORD": ROOT_SECRET, "MINIO_BROWSER": "off"}
        environment |= {"MINIO_IDENTITY_OPENID_CONFIG_URL": f"{issuer.url}/.well-known/openid-configuration"}
        environment |= {"MINIO_IDENTITY_OPENID_CLIENT_ID": issuer.audience, "MINIO_IDENTITY_OPENID_CLIENT_SECRET": "unused"}
        environment |= {"MINIO_IDENTITY_OPENID_ROLE_POLICY": "readwrite"}
        command = [program, "server", "--address", self.address, "--certs-dir", folder / "certs", folder / "drive"]
        super().__init__("minio", folder / "minio.log", command, environment)

    def ready(self):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{self.url}/minio/health/ready", timeout=5).status == 200
        return False

    def variables(self, user=ROOT_USER, secret=ROOT_SECRET):
        """The environment of a process that uses it with a key."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": user,
            "AWS_SECRET_ACCESS_KEY": secret,
        }

    def client(self, user=ROOT_USER, secret=ROOT_SECRET):
        config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
        keys = {"aws_access_key_id": user, "aws_secret_access_key": secret, "region_name": REGION}
        return boto3.client("s3", endpoint_url=self.url, config=config, **keys)

    def keys(self, prefix):
        """Names of objects, however many pages they take."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [found["Key"] for page in pages for found in page.get("Contents", [])]

    def age(self, prefix, days):
        """Objects become older, their bytes stay. How many there are."""
        client, names = self.client(), self.keys(prefix)
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - days * 86_400))
        client.meta.events.register("before-sign.s3.PutObject", lambda request, **_: request.headers.add_header(MODIFIED, when))
        for name in names:
            client.put_object(Bucket=BUCKET, Key=name, Body=client.get_object(Bucket=BUCKET, Key=name)["Body"].read())
        return len(names)

    def admin(self, path, body=b""):
        """A call of the admin API, signed as every call; bodies are encrypted with the root's secret."""
        request = AWSRequest("PUT", f"{self.url}/minio/admin/v3/{path}", data=sealed(body, ROOT_SECRET) if body else b"")
        S3SigV4Auth(Credentials(ROOT_USER, ROOT_SECRET), "s3", REGION).add_auth(request)
        prepared = urllib.request.Request(request.url, request.data, dict(request.headers), method="PUT")
        urllib.request.urlopen(prepared, timeout=30).close()

    def add_user(self, user, secret):
        self.admin(f"add-user?accessKey={user}", json.dumps({"secretKey": secret, "status": "enabled"}).encode())
        self.admin(f"set-user-or-group-policy?isGroup=false&policyName=readwrite&userOrGroup={user}")

    def enable(self, user, enabled):
        self.admin(f"set-user-status?accessKey={user}&status={'enabled' if enabled else 'disabled'}")

    def role(self):
        """The role that whoever shows a token of the issuer may take."""
        return re.search(r"arn:minio:iam:::role/[\w-]+", open(self.log).read())[0]


def sealed(body, secret):
    """MinIO's form of an encrypted body of one fragment: a salt, 0 for AES-256 in GCM, a nonce, the fragment."""
    salt, nonce = os.urandom(32), os.urandom(8)
    key = Argon2id(salt=salt, length=32, iterations=1, lanes=4, memory_cost=64 * 1024).derive(secret.encode())
    cipher, numbered = AESGCM(key), lambda number: nonce + struct.pack("<I", number)
    last = b"\x80" + cipher.encrypt(numbered(0), b"", None)
    return salt + b"\x00" + nonce + cipher.encrypt(numbered(1), body, last)


class Answering(http.server.BaseHTTPRequestHandler):
    def answer(self, code, kind, body):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(url, handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(url.rsplit(":", 1)[1])), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


class ShortLived:
    """Passes the exchange of a token for keys on to MinIO, whose keys live for 15 minutes at least, and says that they end sooner."""

    def __init__(self, minio, seconds):
        self.url, self.exchanges, self.refused = f"http://127.0.0.1:{free_port()}", 0, 0
        between = self

        class Handler(Answering):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = urllib.request.Request(minio.url + self.path, body, method="POST")
                try:
                    with urllib.request.urlopen(request, timeout=30) as reply:
                        code, text = reply.status, reply.read().decode()
                        between.exchanges += 1
                except urllib.error.HTTPError as refusal:
                    code, text = refusal.code, refusal.read().decode()
                    between.refused += 1
                end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
                text = re.sub(r"<Expiration>[^<]*<", f"<Expiration>{end}<", text)
                self.answer(code, "application/xml", text.encode())

        serve(self.url, Handler)


class Issuer:
    """An OpenID provider that signs tokens, as Kubernetes does for service accounts."""

    audience = "trawl"

    def __init__(self):
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.url = f"http://127.0.0.1:{free_port()}"
        issuer = self

        class Handler(Answering):
            def do_GET(self):
                told = issuer.keys() if self.path == "/keys" else issuer.about()
                self.answer(200, "application/json", json.dumps(told).encode())

        serve(self.url, Handler)

    def about(self):
        ends = {f"{name}_endpoint": f"{self.url}/{name}" for name in ("authorization", "token", "userinfo")}
        told = {"issuer": self.url, "jwks_uri": f"{self.url}/keys", "response_types_supported": ["id_token"]}
        return told | ends | {"subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["RS256"]}

    def keys(self):
        public = self.key.public_key().public_numbers()
        number = lambda n: text(n.to_bytes((n.bit_length() + 7) // 8, "big"))
        return {"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "n": number(public.n), "e": number(public.e)}]}

    def token(self, seconds):
        """A token that is valid for so long."""
        now = int(time.time())
        claims = {"iss": self.url, "sub": "trawl", "aud": self.audience, "iat": now, "exp": now + seconds}
        parts = [{"alg": "RS256", "kid": "1", "typ": "JWT"}, claims]
        signed = ".".join(text(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{text(self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def text(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
