"""Rights of service accounts, and objects that the API server admits without anything here that acts on them."""

import json
import re

import issued
import yaml
from stage import CHART, NAMESPACE

PAGE = "docs/kubernetes/install.md"
# Of custom resources that charts of others bring: what they are of, and the program that brings them.
CUSTOM = {"monitoring.coreos.com": "prometheus-crds", "keda.sh": "keda", "cert-manager.io": "cert-manager"}
VERBS = "get list watch create update patch delete".split()
# What Kubernetes itself gives to every account: asking about itself, and authorities that are public.
EVERYBODYS = {"selfsubjectreviews.authentication.k8s.io", "clustertrustbundles.certificates.k8s.io"}
EVERYBODYS |= {f"selfsubject{what}reviews.authorization.k8s.io" for what in ("access", "rules")}
WHAT = "pods pods/exec secrets configmaps services endpoints nodes deployments.apps serviceaccounts/token".split()


def accounts(stage):
    """What each account of the chart may do is what an account may do that nobody gave anything."""
    kubernetes = stage.kubernetes
    if not kubernetes.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/of-nobody"):
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
        f"service accounts have no rights ({', '.join(made)}): Trawl does not use the Kubernetes API",
        f"`kubectl auth can-i --list`: {', '.join(same)} have what an account without roles has: {', '.join(sorted(resources))}",
        made and same == made and resources <= EVERYBODYS,
    )
    reviews = [review(name, what, verb) for name in made for what in WHAT for verb in VERBS]
    questions = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews})
    answers = kubernetes.do("kubectl", "create", "-f", "-", '--output=jsonpath={.status.allowed}{" "}', text=questions).split()
    stage.claims.add(
        PAGE,
        f"none of them ({', '.join(made)}) may read or make anything",
        f"what `kubectl auth can-i` asks, {len(VERBS)} verbs of {len(WHAT)} kinds: {answers.count('false')} of {len(reviews)} questions are denied",
        reviews and answers.count("false") == len(reviews),
    )
    using = {pod["spec"]["serviceAccountName"] for pod in stage.pods().values()}
    stage.claims.add(PAGE, "each pod has the account of its component", ", ".join(sorted(using)), using <= set(made))


def review(name, what, verb):
    """The question of `kubectl auth can-i` for an account."""
    kind, _, part = what.partition("/")
    resource, _, group = kind.partition(".")
    # As the API server names the account's groups.
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
    asked = {"namespace": NAMESPACE, "verb": verb, "group": group, "resource": resource, "subresource": part}
    spec = {"user": f"system:serviceaccount:{NAMESPACE}:{name}", "groups": groups, "resourceAttributes": asked}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def admitted(stage):
    """Every set of values in helm/trawl/ci, with the custom resources of others."""
    for name in CUSTOM.values():
        stage.custom(name)
    if stage.kubernetes.programs["cert-manager"]:
        issued.start(stage)
    served = set(stage.kubernetes.do("kubectl", "api-versions").split())
    for path in sorted((CHART / "ci").glob("*.yaml")):
        where, claim = f"helm/trawl/ci/{path.name}", "the API server admits its objects"
        rendered = stage.helm("template", "other", CHART, "--values", path)
        objects = [o for o in yaml.safe_load_all(rendered) if o]
        for group in sorted({o["apiVersion"].split("/")[0] for o in objects if o["apiVersion"] not in served}):
            kinds = {o["kind"] for o in objects if o["apiVersion"].startswith(group)}
            stage.claims.skip(where, f"{claim}: {', '.join(sorted(kinds))}", f"no {CUSTOM.get(group)}: tools/get-{CUSTOM.get(group)} brings them")
        # The test's pod needs its account to be there, and is run by `helm test`.
        known = [o for o in objects if o["apiVersion"] in served and o["kind"] != "Pod"]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": known})
        said = stage.kubernetes.ran("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", "-", text=text)
        warnings = [line for line in said.stderr.splitlines() if "Warning" in line]
        others = sorted({o["kind"] for o in known if o["apiVersion"].split("/")[0] in CUSTOM})
        seen = f"{len(known)} objects admitted, {len(warnings)} warnings" + (f"; among them {', '.join(others)}" if others else "")
        failed = re.sub(r"\s+", " ", said.stderr)[-300:]
        stage.claims.add(where, claim, seen if said.returncode == 0 else failed, said.returncode == 0 and not warnings)
