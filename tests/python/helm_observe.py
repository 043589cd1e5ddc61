"""What the values under `metrics` do: labels of series, and rules as they reach Prometheus. Part of helm_chart.py's `branches`."""

import json
import pathlib
import subprocess
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALL = ["metrics.podMonitor.enabled=true", "metrics.prometheusRule.enabled=true", "metrics.dashboards.enabled=true"]
BASE = [
    "image.registry=registry.example.org",
    "etcd.endpoints={https://etcd:2379}",
    "etcd.tls.caSecret=etcd-ca",
    "etcd.tls.coordinatorSecret=etcd-coordinator",
    "etcd.tls.workerSecret=etcd-worker",
    "results.bucket.url=s3://b/p",
    *ALL,
]


def observe(helm, check, chart):
    def same(found, wanted, what):
        check(found == wanted, f"{what}: {found!r}, expected {wanted!r}")

    def template(values=None):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(values or {}, file)
            file.flush()
            given = [argument for value in BASE for argument in ("--set", value)]
            return helm.template(*given, "--values", file.name)

    def rules(rendered):
        found = [o for o in rendered.objects if o["kind"] == "PrometheusRule"]
        return [rule for o in found for group in o["spec"]["groups"] for rule in group["rules"]]

    def of(rendered, name):
        return next(rule for rule in rules(rendered) if name in (rule.get("alert"), rule.get("record")))

    def cluster(rendered):
        monitors = [o for o in rendered.objects if o["kind"] == "PodMonitor"]
        same(len(monitors), 2, "monitors")
        labels = [e["relabelings"][0] for o in monitors for e in o["spec"]["podMetricsEndpoints"]]
        return {(label["targetLabel"], label["replacement"]) for label in labels}

    # Without values: every rule of deploy/prometheus, unchanged but for the runbook's address, which nobody knows.
    plain = template()
    given = [yaml.safe_load(p.read_text()) for p in sorted((ROOT / "deploy/prometheus").glob("*.yaml"))]
    wanted = [rule for file in given for group in file["groups"] for rule in group["rules"]]
    for rule in wanted:
        rule.get("annotations", {}).pop("runbook_url", None)
    same(rules(plain), wanted, "the rules")
    same(cluster(plain), {("cluster", "rel-trawl")}, "the label `cluster`")

    # `cluster` is what the processes are called in etcd.
    named = template({"clusterName": "prod"})
    same(cluster(named), {("cluster", "prod")}, "the label `cluster` of a named cluster")
    same(named.config("coordinator")["TRAWL_CLUSTER_NAME"], "prod", "the cluster's name")
    extra = {"action": "labeldrop", "regex": "pod"}
    own = template({"clusterName": "prod", "metrics": {"podMonitor": {"cluster": "eu-1/prod", "relabelings": [extra]}}})
    same(cluster(own), {("cluster", "eu-1/prod")}, "the label `cluster` of one's own")
    same(own.of("PodMonitor", "-worker")["spec"]["podMetricsEndpoints"][0]["relabelings"][1:], [extra], "relabelings")

    # Runbook, labels, alerts left out.
    rule = {"runbookUrl": "https://wiki.example.org/r", "alertLabels": {"team": "quant", "severity": "page"}}
    changed = template({"metrics": {"prometheusRule": rule | {"disabledAlerts": ["TrawlSpansDropped"]}}})
    alert = of(changed, "TrawlNoLeader")
    same(alert["annotations"]["runbook_url"], "https://wiki.example.org/r#trawlnoleader", "the runbook's address")
    same(alert["labels"], {"severity": "page", "team": "quant"}, "labels of an alert")
    left = {r["alert"] for r in wanted if "alert" in r} - {r["alert"] for r in rules(changed) if "alert" in r}
    same(left, {"TrawlSpansDropped"}, "alerts left out")
    check("labels" not in of(changed, "trawl:scans_active:count"), "a recording rule has an alert's labels")
    refused = helm.run(
        "template", "rel", chart, *[a for v in BASE for a in ("--set", v)], "--set", "metrics.prometheusRule.disabledAlerts={TrawlX}"
    )
    check(refused.returncode != 0 and "there is no alert TrawlX" in refused.stderr, f"TrawlX: {refused.stderr}")

    # Objectives.
    objectives = {"success": 0.999, "latency": 0.98, "latencySeconds": 300}
    strict = template({"metrics": {"prometheusRule": {"objectives": objectives}}})
    same(of(strict, "trawl:scan_success:objective")["expr"], "vector(0.999)", "the objective of success")
    same(of(strict, "trawl:scan_latency:objective")["expr"], "vector(0.98)", "the objective of latency")
    for window in ("5m", "30m", "1h", "6h", "3d"):
        bound = of(strict, f"trawl:scans_slow:ratio{window}")["expr"]
        check('le=~"300|300.0"' in bound and "30|30.0" not in bound, f"the bound of {window}: {bound}")

    # What reaches Prometheus is accepted by it.
    promtool = subprocess.run([ROOT / "tools/get-promtool", "--there"], capture_output=True, text=True)
    if promtool.returncode == 0:
        for rendered in (plain, changed, strict):
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                groups = [g for o in rendered.objects if o["kind"] == "PrometheusRule" for g in o["spec"]["groups"]]
                json.dump({"groups": groups}, file)
                file.flush()
                read = subprocess.run([promtool.stdout.strip(), "check", "rules", file.name], capture_output=True, text=True)
                check(read.returncode == 0, f"promtool: {read.stdout}{read.stderr}")
    return len(wanted)
