"""Workers scaled by Kubernetes: an HPA on Trawl's metric, and KEDA from zero and to zero."""

import json
import shutil
import threading
import time
import urllib.request

import policies
import yaml
from processes import wait_for
from stage import CHART, NAMESPACE, OUTPUT

PAGE = "docs/kubernetes/scale.md"
API, PORT = "/apis/external.metrics.k8s.io/v1beta1", 6444
METRIC = "trawl_work_remaining_seconds"
SCALE_SECONDS = 240
BURST = 20
PROMETHEUS = 9090
# The least that the chart takes; so many scans keep six workers busy beyond the interval of the HPA.
HPA_WORKERS, HPA_TARGET_SECONDS, HPA_BURST = (2, 6), 0.1, 60
KEDA = {"kind": "keda", "minReplicas": 0, "maxReplicas": 4, "targetSecondsPerWorker": 0.1, "scaleDownStabilizationSeconds": 15}
KEDA["keda"] = {"pollingInterval": 5, "holdSeconds": 15, "cooldownPeriod": 20}
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


def monitoring(stage):
    """Prometheus, and prometheus-adapter with the rule that the chart brings. The distribution's Prometheus does not ask the API server:
    it finds coordinators by the names of a service, and gives their series the label `namespace` that a PodMonitor gives them."""
    kubernetes = stage.kubernetes
    name, port = "coordinator-metrics", 9464
    labels = {"app.kubernetes.io/part-of": "trawl", "app.kubernetes.io/component": "coordinator"}
    spec = {"clusterIP": "None", "selector": labels, "ports": [{"name": "metrics", "port": port}]}
    kubernetes.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
    names = {"names": [f"{name}.{NAMESPACE}.svc.cluster.local"], "type": "A", "port": port, "refresh_interval": "2s"}
    relabel = [{"target_label": "namespace", "replacement": NAMESPACE}]
    config = {"global": {"scrape_interval": "2s"}, "scrape_configs": [{"job_name": "trawl", "dns_sd_configs": [names], "relabel_configs": relabel}]}
    path = stage.folder / "prometheus.yml"
    path.write_text(json.dumps(config))
    listen = f"127.0.0.1:{PROMETHEUS}"
    command = [kubernetes.programs["prometheus"], "--config.file", path, "--storage.tsdb.path", stage.folder / "prometheus", f"--web.listen-address={listen}"]
    started = [kubernetes.start_process("prometheus", command)]
    rules = yaml.safe_load((CHART / "examples/prometheus-adapter-values.yaml").read_text())["rules"]
    # As the adapter's own chart writes its configuration.
    path = stage.folder / "prometheus-adapter.json"
    path.write_text(json.dumps({"externalRules": rules["external"]}))
    config, pki = kubernetes.configs["admin"], kubernetes.pki
    command = [kubernetes.programs["prometheus-adapter"], f"--prometheus-url=http://{listen}", f"--config={path}", f"--secure-port={PORT}"]
    command += ["--tls-cert-file", pki / "server.crt", "--tls-private-key-file", pki / "server.key", "--metrics-relist-interval=10s"]
    command += [f"--{name}kubeconfig={config}" for name in ("lister-", "authentication-", "authorization-")]
    started.append(kubernetes.start_process("prometheus-adapter", command))
    serve(stage, "prometheus-adapter", PORT)
    return started


def serve(stage, name, port):
    """A service of the API server's own for metrics."""
    stage.beside(name, "kube-system", port)
    stage.kubernetes.apply(
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
    started = monitoring(stage)
    at = f"{API}/namespaces/{NAMESPACE}/{METRIC}"
    answer = wait_for("the adapter has the metric", lambda: stage.kubernetes.get(at).get("items"), SCALE_SECONDS)
    stage.claims.add(
        "helm/trawl/examples/prometheus-adapter-values.yaml",
        "prometheus-adapter makes an external metric of the series that Prometheus scrapes, by the chart's rule",
        f"`kubectl get --raw {at}`: {len(answer)} value, {answer[0]['value']}, of {answer[0]['metricLabels']}",
        len(answer) == 1 and answer[0]["metricLabels"].get("namespace") == NAMESPACE,
    )
    path = stage.folder / "hpa.json"
    least, most = HPA_WORKERS
    auto = {"kind": "hpa", "minReplicas": least, "maxReplicas": most, "targetSecondsPerWorker": HPA_TARGET_SECONDS, "scaleDownStabilizationSeconds": 15}
    path.write_text(json.dumps({"worker": {"autoscaling": auto}}))
    stage.install("trawl", "--values", stage.values, "--values", path, verb="upgrade")
    wait_for(f"{least} workers without work", lambda: len(stage.registered()) == least, SCALE_SECONDS)
    began = time.monotonic()
    scans = burst(stage, HPA_BURST)
    left = scraped(stage)
    wait_for(f"{most} workers for {left:.1f} s of work", lambda: len(stage.registered()) == most, SCALE_SECONDS)
    up = time.monotonic() - began
    wait_for("no work is left", lambda: scraped(stage) == 0, SCALE_SECONDS)
    began = time.monotonic()
    wait_for(f"{least} workers again", lambda: len(stage.registered()) == least, SCALE_SECONDS)
    down = time.monotonic() - began
    right = answered(stage, scans)
    stage.figures["hpa_seconds"] = {"up": round(up, 1), "down": round(down, 1)}
    stage.claims.add(
        PAGE,
        f"`hpa`: an HPA on `{METRIC}` scales workers {least} -> {most} -> {least}",
        f"{most} after {up:.0f} s of a burst of {len(scans)} scans ({left:.1f} s of work), {least} {down:.0f} s after the last scan; {right} of {len(scans)} scans with equal bytes",
        right == len(scans),
    )
    for process in started:
        process.kill()


def keda_processes(stage):
    """KEDA's operator and metrics adapter, as processes beside the nodes, with the rights of an administrator, once."""
    kubernetes, folder = stage.kubernetes, stage.kubernetes.programs["keda"]
    if stage.runs("keda-operator"):
        return
    certificates = stage.folder / "keda-certificates"
    certificates.mkdir()
    for of, name in (("ca.crt", "ca.crt"), ("server.crt", "tls.crt"), ("server.key", "tls.key")):
        shutil.copy(kubernetes.pki / of, certificates / name)
    kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "keda"}})
    stage.custom("keda")
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
    keda_processes(stage)
    path = stage.folder / "keda.json"
    path.write_text(json.dumps({"worker": {"autoscaling": KEDA}}))
    stage.install("trawl", "--values", stage.values, "--values", path, verb="upgrade")
    began = time.monotonic()
    wait_for("no worker without work", lambda: not stage.pods("worker"), SCALE_SECONDS)
    stage.claims.add(PAGE, "`keda`, `minReplicas: 0`: no worker without work", f"after {time.monotonic() - began:.0f} s", True)
    if policies.enforced(stage):
        to = {"coordinator 7400": (policies.one(stage, "coordinator")["status"]["podIP"], policies.GRPC)}
        may = {name for name in ("keda", policies.USERS) if policies.reached(policies.bystander(stage, name), to)}
        stage.claims.add("docs/kubernetes/install.md", "NetworkPolicies: KEDA's namespace reaches coordinators where KEDA scales", policies.said(may, {"keda"}), may == {"keda"})
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
