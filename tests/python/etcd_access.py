"""A real etcd with client certificates for tests: certificates by openssl, the server, and clients that say what it answered."""

import dataclasses
import json
import os
import pathlib
import socket
import ssl
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 30


def tool(name, variable):
    """The path of `etcd` or `etcdctl`, from the environment or tools/get-etcd."""
    if given := os.environ.get(variable):
        return given
    command = [ROOT / "tools/get-etcd"] + ([name] if name != "etcd" else [])
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def openssl(*arguments):
    ended = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True)
    if ended.returncode != 0:
        raise SystemExit(f"openssl {' '.join(map(str, arguments))}:\n{ended.stderr}")


def certificate(folder, common_name, issuer=None, usages=(), names=()):
    """Writes ca.crt, tls.crt and tls.key; without an issuer, those of a CA."""
    folder.mkdir(parents=True)
    key, signed = folder / "tls.key", folder / "tls.crt"
    lines = ["basicConstraints=critical,CA:TRUE", "keyUsage=keyCertSign,cRLSign"]
    if issuer:
        extended = {"server auth": "serverAuth", "client auth": "clientAuth"}
        lines = ["basicConstraints=CA:FALSE", "keyUsage=digitalSignature"]
        lines.append(f"extendedKeyUsage={','.join(extended[u] for u in usages if u in extended)}")
        lines += [f"subjectAltName={','.join(names)}"] if names else []
    (folder / "extensions").write_text("\n".join(lines))
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
    openssl("req", "-new", "-key", key, "-subj", f"/CN={common_name}", "-out", folder / "request")
    signer = ["-CA", issuer / "tls.crt", "-CAkey", issuer / "tls.key"] if issuer else ["-signkey", key]
    request = ["-req", "-in", folder / "request", "-out", signed, "-days", "1", "-extfile", folder / "extensions"]
    openssl("x509", *request, *signer, *(["-CAcreateserial"] if issuer else []))
    (folder / "ca.crt").write_bytes(((issuer or folder) / "tls.crt").read_bytes())
    for passing in ("extensions", "request"):
        (folder / passing).unlink()


@dataclasses.dataclass
class Identity:
    """What a client trusts and presents."""

    ca: pathlib.Path
    certificate: pathlib.Path | None = None
    key: pathlib.Path | None = None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Etcd:
    """One etcd with the given arguments about certificates; its addresses and its folder are of this run."""

    def __init__(self, folder, arguments):
        self.folder = folder
        self.port, peer = free_port(), free_port()
        self.address = f"https://127.0.0.1:{self.port}"
        own = {
            "--name": "trial",
            "--data-dir": folder / "data",
            "--listen-client-urls": self.address,
            "--advertise-client-urls": self.address,
            "--listen-peer-urls": f"http://127.0.0.1:{peer}",
            "--initial-advertise-peer-urls": f"http://127.0.0.1:{peer}",
            "--initial-cluster": f"trial=http://127.0.0.1:{peer}",
            "--listen-metrics-urls": f"http://127.0.0.1:{free_port()}",
        }
        kept = [a for a in arguments if a.split("=")[0] not in own]
        self.arguments = kept + [f"{k}={v}" for k, v in own.items()]

    def __enter__(self):
        self.folder.mkdir(parents=True)
        self.log = open(self.folder / "log", "w")
        command = [tool("etcd", "TRAWL_ETCD"), *map(str, self.arguments)]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        until = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < until and self.process.poll() is None:
            if "ready to serve client requests" in (self.folder / "log").read_text():
                return self
            time.sleep(0.1)
        self.__exit__()
        raise SystemExit(f"etcd does not start:\n{(self.folder / 'log').read_text()[-2000:]}")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def request(self, identity, text):
        """The answer to an HTTP request, or the error of TLS."""
        context = ssl.create_default_context(cafile=identity.ca)
        if identity.certificate:
            context.load_cert_chain(identity.certificate, identity.key)
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as plain:
                with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                    connection.sendall(text.encode())
                    parts = []
                    while part := connection.recv(65536):
                        parts.append(part)
                    return b"".join(parts).decode().split(" ", 1)[1]
        except (ssl.SSLError, ConnectionError) as error:
            return f"{error}"

    def asks(self, identity):
        return self.request(identity, "GET /version HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n")

    def refuses(self, identity):
        """The answer, or why etcd refused according to its log: a client may lose the alert with the connection."""
        read = len((self.folder / "log").read_text())
        answer = self.asks(identity)
        until = time.monotonic() + START_SECONDS_MAX
        while not answer.startswith("200") and time.monotonic() < until:
            if "rejected connection" in (log := (self.folder / "log").read_text()[read:]):
                return log
            time.sleep(0.05)
        return answer

    def json(self, identity, path, body):
        body = json.dumps(body)
        head = f"POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        return self.request(identity, head + body)

    def environment(self, identity):
        path = pathlib.Path(tool("etcdctl", "TRAWL_ETCDCTL")).parent
        return os.environ | {
            "PATH": f"{path}:{os.environ['PATH']}",
            "ETCDCTL_ENDPOINTS": self.address,
            "ETCDCTL_CACERT": str(identity.ca),
            "ETCDCTL_CERT": str(identity.certificate),
            "ETCDCTL_KEY": str(identity.key),
        }

    def ctl(self, identity, *arguments):
        """What etcdctl prints, result or error."""
        command = ["etcdctl", "--dial-timeout=2s", "--command-timeout=2s", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, env=self.environment(identity))
        return (ended.stdout + ended.stderr).strip()

    def shell(self, identity, script):
        """Runs commands as a user would, with etcdctl on the PATH."""
        return subprocess.run(
            ["bash", "-e", "-c", script], capture_output=True, text=True, env=self.environment(identity)
        )
