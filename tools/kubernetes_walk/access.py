"""Rights of service accounts, and objects that the API server admits without anything here that acts on them."""

import json
import re

import yaml
from processes import wait_for
from stage import CHART, NAMESPACE, UP_SECONDS, USER

PAGE = "docs/kubernetes/install.md"
SERVED = {"apps/v1", "autoscaling/v2", "batch/v1", "networking.k8s.io/v1", "policy/v1", "scheduling.k8s.io/v1", "v1"}
VERBS = "get list watch create update patch delete".split()
# What Kubernetes itself gives to every account: asking about itself, and authorities that are public.
EVERYBODYS = {"selfsubjectreviews.authentication.k8s.io", "clustertrustbundles.certificates.k8s.io"}
EVERYBODYS |= {f"selfsubject{what}reviews.authorization.k8s.io" for what in ("access", "rules")}
WHAT = "pods pods/exec secrets configmaps services endpoints nodes deployments.apps serviceaccounts/token".split()


def accounts(stage):
    """What each account of the chart may do is what an account may do that nobody gave anything."""
    kubernetes = stage.kubernetes
    kubernetes.do("kubectl", "--namespace", NAMESPACE, "create", "serviceaccount", "of-nobody")
    listed = kubernetes.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts")["items"]
    made = [a["metadata"]["name"] for a in listed if a["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "trawl"]
    rights = lambda name: kubernetes.do(
        "kubectl", "--namespace", NAMESPACE, "auth", "can-i", "--list", f"--as=system:serviceaccount:{NAMESPACE}:{name}"
    )
    # Lines come in any order.
    nothing = sorted(rights("of-nobody").splitlines())
    same = [name for name in made if sorted(rights(name).splitlines()) == nothing]
    resources = {line.split()[0] for line in nothing if line and not line.startswith((" ", "Resources"))}
    stage.claims.add(
        PAGE,
        "service accounts have no rights: Trawl does not use the Kubernetes API",
        f"`kubectl auth can-i --list`: {', '.join(made)} have what an account without roles has: {', '.join(sorted(resources))}",
        made and same == made and resources <= EVERYBODYS,
    )
    denied, asked = 0, 0
    for name in made:
        for what in WHAT:
            for verb in VERBS[:2] if what == "pods/exec" else VERBS[:1] + VERBS[3:4]:
                asked += 1
                said = kubernetes.ran(
                    "kubectl", "--namespace", NAMESPACE, "auth", "can-i", verb, what, f"--as=system:serviceaccount:{NAMESPACE}:{name}"
                )
                denied += said.stdout.strip() == "no"
    stage.claims.add(PAGE, "none of them may read or make anything", f"`kubectl auth can-i`: {denied} of {asked} questions are denied", denied == asked)
    pods = stage.pods().values()
    using = {pod["spec"]["serviceAccountName"] for pod in pods}
    stage.claims.add(PAGE, "each pod has the account of its component", ", ".join(sorted(using)), using <= set(made))


def policies(stage):
    found = stage.kubernetes.get(f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies")["items"]
    names = sorted(p["metadata"]["name"] for p in found)
    stage.claims.add(
        PAGE,
        "NetworkPolicies deny all but what is listed",
        f"admitted, not enforced by anything here: {', '.join(names)}",
        len(names) == 4,
    )


def admitted(stage):
    """Every set of values in helm/trawl/ci, as far as the API server knows the kinds."""
    for path in sorted((CHART / "ci").glob("*.yaml")):
        rendered = stage.helm("template", "other", CHART, "--values", path)
        objects = [o for o in yaml.safe_load_all(rendered) if o]
        others = sorted({o["kind"] for o in objects if o["apiVersion"] not in SERVED})
        # The test's pod needs its account to be there, and is run by `helm test`.
        known = [o for o in objects if o["apiVersion"] in SERVED and o["kind"] != "Pod"]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": known})
        said = stage.kubernetes.ran("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", "-", text=text)
        warnings = [line for line in said.stderr.splitlines() if "Warning" in line]
        seen = f"{len(known)} objects admitted, {len(warnings)} warnings"
        seen += f"; not served here: {', '.join(others)}" if others else ""
        failed = re.sub(r"\s+", " ", said.stderr)[-300:]
        stage.claims.add(f"helm/trawl/ci/{path.name}", "the API server admits its objects", seen if said.returncode == 0 else failed, said.returncode == 0 and not warnings)


def imports(stage):
    """The import of docs/kubernetes/install.md, started by hand."""
    kubernetes = stage.kubernetes
    files = stage.volume("drop", "vendor-drop")
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "100Gi"}}, "volumeName": "drop", "storageClassName": ""}
    kubernetes.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "vendor-drop", "namespace": NAMESPACE}, "spec": claim})
    days = [f"2024-01-{day:02}" for day in range(2, 30)]
    rows = "".join(f"{day},{10 + n},{12 + n},{9 + n},{11 + n},1000\n" for n, day in enumerate(days))
    for symbol in ("AAA", "BBB"):
        (files / f"{symbol}.csv").write_text("Date,Open,High,Low,Close,Volume\n" + rows)
    more = {
        "import": {
            "enabled": True,
            "dataset": "imported",
            "sourceClaim": "vendor-drop",
            "arguments": ["--format=yahoo-csv", "/incoming"],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
        }
    }
    path = stage.folder / "import.json"
    path.write_text(json.dumps(more))
    stage.install("trawl", "--values", stage.values, "--values", path, verb="upgrade")
    kubernetes.do("kubectl", "--namespace", NAMESPACE, "create", "job", "by-hand", "--from=cronjob/trawl-import")
    state = lambda: kubernetes.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/by-hand").get("status", {})
    ended = wait_for("the import ends", lambda: {c["type"] for c in state().get("conditions", [])} & {"Complete", "Failed"}, UP_SECONDS)
    answer = stage.scan("imported", "close > open")
    log = kubernetes.ran("kubectl", "--namespace", NAMESPACE, "logs", "job/by-hand").stdout.strip().splitlines()
    stage.claims.add(
        PAGE,
        "an import writes a new snapshot, which scans see",
        f"the job is {ended.pop()} as user {USER}; {'both symbols match' if answer.stdout.count('match') else (answer.stderr + str(log))[-300:]}",
        "succeeded" in state() and "AAA" in answer.stdout and "BBB" in answer.stdout,
    )
