"""A real server of objects (MinIO) as a child, and as much of a client of S3 as the checks need: signed requests, temporary keys, and an
address that hands keys out as the machine's role does."""

import datetime
import hashlib
import hmac
import http.server
import json
import os
import re
import threading
import urllib.error
import urllib.parse
import urllib.request

from processes import Process, free_port

REGION = "us-east-1"


class Minio(Process):
    def __init__(self, program, folder, bucket):
        self.address = f"127.0.0.1:{free_port()}"
        self.url, self.user, self.secret = f"http://{self.address}", "trawl-test", "a-secret-of-this-run"
        # A folder of its drive is a bucket.
        (folder / "minio" / bucket).mkdir(parents=True)
        environment = os.environ | {"MINIO_ROOT_USER": self.user, "MINIO_ROOT_PASSWORD": self.secret}
        command = [program, "server", "--address", self.address, "--console-address", f"127.0.0.1:{free_port()}"]
        super().__init__("minio", folder / "minio.log", [*command, folder / "minio"], environment)

    def ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/minio/health/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def call(self, method, path, query="", body=b"", service="s3", **headers):
        """(status, body) of a request that is signed as Amazon's version 4 says."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        signed = {"host": self.address, "x-amz-content-sha256": digest, "x-amz-date": now} | headers
        names = ";".join(sorted(signed))
        lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
        request = "\n".join([method, path, query, lines, names, digest])
        scope = f"{now[:8]}/{REGION}/{service}/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
        key = f"AWS4{self.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        credential = f"AWS4-HMAC-SHA256 Credential={self.user}/{scope}, SignedHeaders={names}, Signature={signature}"
        asked = urllib.request.Request(
            f"{self.url}{path}?{query}", body or None, signed | {"authorization": credential}, method=method
        )
        try:
            with urllib.request.urlopen(asked, timeout=20) as answer:
                return answer.status, answer.read().decode(errors="replace")
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode(errors="replace")

    def names(self, bucket, prefix=""):
        """The names of all objects, page by page."""
        found, token = [], ""
        while True:
            asked = {"list-type": "2", "prefix": prefix} | ({"continuation-token": token} if token else {})
            query = "&".join(f"{k}={urllib.parse.quote(asked[k], safe='')}" for k in sorted(asked))
            status, body = self.call("GET", f"/{bucket}", query)
            if status != 200:
                raise OSError(f"MinIO lists nothing: {body}")
            found += re.findall(r"<Key>([^<]*)</Key>", body)
            more = re.search(r"<NextContinuationToken>([^<]*)</NextContinuationToken>", body)
            if not more:
                return found
            token = more[1]

    def temporary(self):
        """Keys with a token that end by themselves."""
        form = {"content-type": "application/x-www-form-urlencoded"}
        body = b"Action=AssumeRole&Version=2011-06-15&DurationSeconds=900"
        status, said = self.call("POST", "/", "", body, "sts", **form)
        if status != 200:
            raise OSError(f"MinIO gives no temporary keys: {said}")
        part = lambda name: re.search(f"<{name}>([^<]*)</{name}>", said)[1]
        return {
            "AccessKeyId": part("AccessKeyId"),
            "SecretAccessKey": part("SecretAccessKey"),
            "Token": part("SessionToken"),
        }


class Role:
    """Hands out keys at an address, as a machine's role does; `keys` may be exchanged while it runs."""

    def __init__(self, keys, seconds):
        role = self
        self.keys, self.seconds, self.asked = keys, seconds, 0

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                role.asked += 1
                ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=role.seconds)
                body = json.dumps(role.keys | {"Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/keys"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
