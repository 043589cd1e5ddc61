"""The collector of deploy/otelcol and Jaeger 2 of deploy/jaeger as child processes, and a gate that counts bytes."""

import os
import pathlib
import re
import socket
import threading
import urllib.request

from processes import Process, free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What a gate reads at once.
CHUNK_BYTES = 65536


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


class Jaeger(Process):
    """Traces in memory: one that was killed has forgotten all."""

    def __init__(self, program, folder):
        self.otlp, query = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.url = f"http://{query}"
        environment = os.environ | {"JAEGER_OTLP": self.otlp, "JAEGER_QUERY": query}
        environment |= {"JAEGER_QUERY_GRPC": f"127.0.0.1:{free_port()}"}
        command = [program, "--config", ROOT / "deploy/jaeger/config.yaml"]
        super().__init__("jaeger", folder / "jaeger.log", command, environment)

    def ready(self):
        return answers(f"{self.url}/api/services")


class Collector(Process):
    """With the configuration of deploy/otelcol, and what `more` (YAML) puts in its place."""

    def __init__(self, program, folder, jaeger, name="otelcol", more=""):
        ports = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        metrics = free_port()
        self.otlp, self.health, self.metrics = f"http://{ports[0]}", f"http://{ports[2]}", f"http://127.0.0.1:{metrics}"
        environment = os.environ | {"OTLP_GRPC": ports[0], "OTLP_HTTP": ports[1], "OTELCOL_HEALTH": ports[2]}
        environment |= {"TRAWL_JAEGER": jaeger.otlp, "OTELCOL_METRICS_PORT": str(metrics)}
        command = [program, "--config", ROOT / "deploy/otelcol/config.yaml"]
        if more:
            (folder / f"{name}.yaml").write_text(more)
            command += ["--config", folder / f"{name}.yaml"]
        super().__init__(name, folder / f"{name}.log", command, environment)

    def ready(self):
        return answers(self.health)

    def counter(self, name):
        """The sum of one of its own counters over all labels; 0 where it has not counted yet."""
        return total(f"{self.metrics}/metrics", name)


def total(url, name):
    """The sum of a counter over all its labels in the text of a metrics page, with or without the ending `_total`."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(rf"^{name}(?:_total)?(?:{{[^}}]*}})? (\S+)", text, re.MULTILINE)
    return sum(map(float, found))


class Gate:
    """Passes connections on to an address and counts the bytes that go there."""

    def __init__(self, address):
        host, port = address.removeprefix("http://").split(":")
        self.there, self.bytes = (host, int(port)), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.lock = threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                here, _ = self.listener.accept()
                there = socket.create_connection(self.there)
            except OSError:
                return
            threading.Thread(target=self.pass_on, args=(here, there, True), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(there, here, False), daemon=True).start()

    def pass_on(self, source, target, counted):
        try:
            while chunk := source.recv(CHUNK_BYTES):
                if counted:
                    with self.lock:
                        self.bytes += len(chunk)
                target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            target.close()

    def close(self):
        self.listener.close()
