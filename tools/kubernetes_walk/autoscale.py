"""Workers scaled by Kubernetes: an HPA on Trawl's metric, and KEDA from zero and to zero."""

import json
import pathlib
import shutil
import ssl
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from network import GATEWAY
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


def keda_processes(stage):
    """KEDA's operator and metrics adapter, as processes beside the nodes, with the rights of an administrator."""
    kubernetes, folder = stage.kubernetes, stage.kubernetes.programs["keda"]
    certificates = stage.folder / "keda-certificates"
    certificates.mkdir()
    for of, name in (("ca.crt", "ca.crt"), ("server.crt", "tls.crt"), ("server.key", "tls.key")):
        shutil.copy(kubernetes.pki / of, certificates / name)
    kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "keda"}})
    for path in sorted(pathlib.Path(folder, "resources").glob("*.yaml")):
        kubernetes.do("kubectl", "create", "-f", path)
    config = kubernetes.configs["admin"]
    variables = {"WATCH_NAMESPACE": "", "POD_NAMESPACE": "keda", "POD_NAME": "keda", "KEDA_CLUSTER_OBJECT_NAMESPACE": "keda", "KUBECONFIG": str(config)}
    operator = [f"{folder}/operator", "--kubeconfig", config, "--cert-dir", certificates, "--metrics-bind-address=127.0.0.1:18080"]
    operator += ["--health-probe-bind-address=127.0.0.1:18081", "--metrics-service-bind-address=127.0.0.1:9666"]
    operator += ["--enable-webhook-patching=false", "--enable-apiservice-patching=false"]
    kubernetes.start_process("keda-operator", operator, **variables)
    metrics = [f"{folder}/adapter", f"--secure-port={PORT + 1}", "--cert-dir", certificates, "--port=18082"]
    metrics += ["--tls-cert-file", certificates / "tls.crt", "--tls-private-key-file", certificates / "tls.key"]
    metrics += ["--kubeconfig", config, "--lister-kubeconfig", config, "--authentication-kubeconfig", config]
    metrics += ["--authorization-kubeconfig", config, "--metrics-service-address=127.0.0.1:9666"]
    kubernetes.start_process("keda-adapter", metrics, **variables)
    serve(stage, "keda-metrics", PORT + 1)


def keda(stage):
    """From no worker to some and to none, twice, by the scaler in the coordinator."""
    if not stage.kubernetes.programs["keda"]:
        print("SKIPPED: no KEDA: tools/get-keda builds it")
        return
    keda_processes(stage)
    path = stage.folder / "keda.json"
    auto = {"kind": "keda", "minReplicas": 0, "maxReplicas": 4, "targetSecondsPerWorker": 0.1, "scaleDownStabilizationSeconds": 15}
    auto["keda"] = {"pollingInterval": 5, "holdSeconds": 15, "cooldownPeriod": 20}
    path.write_text(json.dumps({"worker": {"autoscaling": auto}}))
    stage.install("trawl", "--values", stage.values, "--values", path, verb="upgrade")
    began = time.monotonic()
    wait_for("no worker without work", lambda: not stage.pods("worker"), SCALE_SECONDS)
    stage.claims.add(PAGE, "`keda`, `minReplicas: 0`: no worker without work", f"after {time.monotonic() - began:.0f} s", True)
    for number in (1, 2):
        began = time.monotonic()
        alone = threading.Thread(target=lambda: waited.append(stage.scan()))
        waited = []
        alone.start()
        scans = burst(stage)
        wait_for("a worker", lambda: stage.registered(), SCALE_SECONDS)
        first = time.monotonic() - began
        most = [0]

        def done():
            most[0] = max(most[0], len(stage.registered()))
            return scraped(stage) == 0 and waited

        wait_for("all work is done", done, SCALE_SECONDS)
        worked = time.monotonic() - began
        wait_for("no worker again", lambda: not stage.pods("worker"), SCALE_SECONDS)
        none = time.monotonic() - began - worked
        alone.join()
        right = answered(stage, scans) + (waited[0].stdout == stage.expected)
        stage.figures.setdefault("keda_seconds", []).append({"first": round(first, 1), "done": round(worked, 1), "none": round(none, 1)})
        stage.claims.add(
            PAGE,
            f"`keda` from zero and to zero, burst {number}: {len(scans)} recorded scans and one whose client waits",
            f"first worker after {first:.0f} s, at most {most[0]}, done after {worked:.0f} s, none {none:.0f} s later; "
            f"{right} of {len(scans) + 1} scans with equal bytes",
            right == len(scans) + 1 and most[0] > 1,
        )
