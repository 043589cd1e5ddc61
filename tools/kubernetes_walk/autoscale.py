"""Workers scaled by Kubernetes: an HPA on Trawl's metric."""

import json
import ssl
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from machine import GATEWAY
from processes import wait_for
from stage import OUTPUT

PAGE = "docs/kubernetes/scale.md"
API, PORT = "/apis/external.metrics.k8s.io/v1beta1", 6444
METRIC = "trawl_work_remaining_seconds"
SCALE_SECONDS = 240
BURST = 20
# A sweep, so that the cost model sees seconds of work in each scan.
HEAVY = ("--dataset", "market", "--where", "close > sma(close, n)", "--sweep", "n=5:64:1")


def scraped(stage):
    """The metric over all coordinators, as Prometheus would add it up."""
    total = 0.0
    for pod in stage.pods("coordinator").values():
        try:
            with urllib.request.urlopen(f"http://{pod['status']['podIP']}:9464/metrics", timeout=5) as page:
                lines = page.read().decode().splitlines()
        except (OSError, KeyError):
            continue
        total += sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(METRIC))
    return total


def adapter(stage):
    """The external metrics API over one metric: what prometheus-adapter is with the chart's rule, without a Prometheus."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            path = urllib.parse.urlparse(self.path).path
            if path.rstrip("/") == API:
                resource = {"name": METRIC, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
                body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "external.metrics.k8s.io/v1beta1", "resources": [resource]}
            else:
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                item = {"metricName": METRIC, "metricLabels": {}, "timestamp": now, "value": f"{scraped(stage) * 1000:.0f}m"}
                body = {"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}, "items": [item]}
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer((GATEWAY, PORT), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(stage.kubernetes.pki / "server.crt", stage.kubernetes.pki / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    serve(stage, "adapter", PORT)
    return server


def serve(stage, name, port):
    """A service of the API server's own for metrics, at this machine's address."""
    meta = {"name": name, "namespace": "kube-system"}
    labels = {"kubernetes.io/service-name": name}
    stage.kubernetes.apply(
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 443, "targetPort": port}]}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": meta | {"labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [GATEWAY]}],
            "ports": [{"name": "", "port": port, "protocol": "TCP"}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
            "spec": {
                "group": "external.metrics.k8s.io",
                "version": "v1beta1",
                "service": {"name": name, "namespace": "kube-system"},
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
            },
        },
    )
    wait_for("the API server reaches the metrics", lambda: stage.kubernetes.answers(API), SCALE_SECONDS)


def burst(stage, scans=BURST):
    """Recorded scans whose clients do not wait. Their ids."""
    found = []
    for _ in range(scans):
        ended = stage.command("scan", *HEAVY, "--shards", "per-group", "--fresh", "--detach")
        if ended.returncode != 0:
            raise RuntimeError(f"a scan was refused: {ended.stderr}")
        found.append(ended.stdout.split()[-1])
    return found


def answered(stage, scans):
    """How many of them have the bytes of one process."""
    expected = stage.ran("scan", *HEAVY, *OUTPUT).stdout
    own = lambda scan: stage.command("results", scan, *OUTPUT).stdout
    return sum(own(scan) == expected for scan in scans)


def hpa(stage):
    server = adapter(stage)
    path = stage.folder / "hpa.json"
    auto = {"kind": "hpa", "minReplicas": 1, "maxReplicas": 4, "targetSecondsPerWorker": 0.1, "scaleDownStabilizationSeconds": 15}
    path.write_text(json.dumps({"worker": {"autoscaling": auto}}))
    stage.install("trawl", "--values", stage.values, "--values", path, verb="upgrade")
    wait_for("one worker without work", lambda: len(stage.registered()) == 1, SCALE_SECONDS)
    began = time.monotonic()
    scans = burst(stage)
    left = scraped(stage)
    most = wait_for(f"four workers for {left:.1f} s of work", lambda: len(stage.registered()) == 4 and 4, SCALE_SECONDS)
    up = time.monotonic() - began
    wait_for("no work is left", lambda: scraped(stage) == 0, SCALE_SECONDS)
    began = time.monotonic()
    wait_for("one worker again", lambda: len(stage.registered()) == 1, SCALE_SECONDS)
    down = time.monotonic() - began
    right = answered(stage, scans)
    stage.figures["hpa_seconds"] = {"up": round(up, 1), "down": round(down, 1)}
    stage.claims.add(
        PAGE,
        f"`hpa`: an HPA on `{METRIC}` scales workers, from 1 on",
        f"1 to {most} after {up:.0f} s of a burst of {len(scans)} scans ({left:.1f} s of work), back to 1 {down:.0f} s after the last scan; {right} of {len(scans)} scans with equal bytes",
        right == len(scans),
    )
    server.shutdown()
