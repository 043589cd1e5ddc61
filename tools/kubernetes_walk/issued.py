"""Certificates from cert-manager: the chart's own authorities, an etcd that demands them, and their renewal while scans run."""

import base64
import json
import re
import subprocess
import time

import autoscale
import secured
from processes import wait_for
from stage import NAMESPACE, OUTPUT, UP_SECONDS

PAGE = "docs/kubernetes/install.md"
NAME, WEBHOOK, WEBHOOK_PORT = "cert-manager", "cert-manager-webhook", 10260
# The kubelet brings a changed Secret into a pod within a minute or two, Trawl looks every few seconds.
RENEWED_SECONDS = 240


def start(stage):
    """cert-manager's controllers and webhook, as a process beside the nodes, with the rights of an administrator, once."""
    kubernetes, folder = stage.kubernetes, stage.kubernetes.programs["cert-manager"]
    if stage.runs("cert-manager"):
        return
    stage.custom("cert-manager")
    kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}})
    kubernetes.start_process("cert-manager", [f"{folder}/controller", "--kubeconfig", kubernetes.configs["admin"], "--webhook-port", WEBHOOK_PORT])
    stage.beside(WEBHOOK, NAME, WEBHOOK_PORT)
    authority = wait_for("the webhook has an authority", lambda: kubernetes.get(f"/api/v1/namespaces/{NAME}/secrets/{WEBHOOK}-ca").get("data"), UP_SECONDS)

    def asked(kind, path, group, operations, resources):
        """What cert-manager's own chart makes, with the authority that its injector puts there."""
        rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": [resources]}
        at = {"service": {"name": WEBHOOK, "namespace": NAME, "path": path}, "caBundle": authority["ca.crt"]}
        hook = {"name": "webhook.cert-manager.io", "rules": [rule], "clientConfig": at, "admissionReviewVersions": ["v1"]}
        hook |= {"failurePolicy": "Fail", "sideEffects": "None", "matchPolicy": "Equivalent"}
        return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": WEBHOOK}, "webhooks": [hook]}

    kubernetes.apply(
        asked("ValidatingWebhookConfiguration", "/validate", "cert-manager.io", ["CREATE", "UPDATE"], "*/*"),
        asked("MutatingWebhookConfiguration", "/mutate", "cert-manager.io", ["CREATE"], "certificaterequests"),
    )
    # Custom resources admit it, and the webhook alone does not: it would be renewed before it was issued.
    spec = {"secretName": "none", "issuerRef": {"name": "none"}, "dnsNames": ["none"], "duration": "2h", "renewBefore": "3h"}
    wrong = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "none", "namespace": "default"}, "spec": spec}
    create = lambda: kubernetes.ran("kubectl", "create", "--dry-run=server", "-f", "-", text=json.dumps(wrong)).stderr
    refused = wait_for("the webhook answers", lambda: (said := create()) and "failed calling webhook" not in said and said, UP_SECONDS)
    stage.claims.add(
        "docs/kubernetes/tried.md",
        "the API server asks cert-manager's webhook through its service",
        re.sub(r"\s+", " ", refused).strip()[-200:],
        'admission webhook "webhook.cert-manager.io" denied the request' in refused and "renewBefore" in refused,
    )


def certificates(stage):
    found = stage.kubernetes.get(f"/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/certificates").get("items", [])
    ready = lambda one: any(c["type"] == "Ready" and c["status"] == "True" for c in one.get("status", {}).get("conditions", []))
    return {one["metadata"]["name"]: ready(one) for one in found}


def secret_files(stage, name):
    """A Secret's certificate, key and authority as files."""
    data = stage.kubernetes.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}")["data"]
    folder = stage.folder / name
    folder.mkdir(exist_ok=True)
    for key in ("ca.crt", "tls.crt", "tls.key"):
        (folder / key).write_bytes(base64.b64decode(data[key]))
        (folder / key).chmod(0o600)
    return ("--tls-ca", folder / "ca.crt", "--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key")


def served(stage, shown):
    """The number of the certificate that the Service shows."""
    host = stage.address.split("//")[1]
    command = ["openssl", "s_client", "-connect", host, "-alpn", "h2", "-cert", shown[3], "-key", shown[5]]
    said = subprocess.run(list(map(str, command)), input="", capture_output=True, text=True).stdout
    number = subprocess.run(["openssl", "x509", "-noout", "-serial"], input=said, capture_output=True, text=True).stdout
    return number.strip()


def issued(stage):
    """Takes the place of the release before."""
    kubernetes, claim = stage.kubernetes, stage.claims.add
    stage.uninstall()
    start(stage)
    chosen = json.loads(stage.values.read_text()) | {"etcd": {"trial": {"enabled": True, "storage": ""}}, "tls": {"mode": "certManager"}}
    # One, so that the Service shows one certificate.
    chosen["coordinator"] = chosen["coordinator"] | {"replicas": 1}
    path = stage.folder / "issued.json"
    path.write_text(json.dumps(chosen))
    seconds, _ = stage.install("trawl", "--values", path)
    found = certificates(stage)
    claim(
        PAGE,
        "`tls.mode=certManager`: authorities of the release, certificates of coordinators, workers, clients and etcd",
        f"ready after {seconds:.0f} s, {sum(found.values())} of {len(found)} certificates: {', '.join(sorted(found))}",
        found and all(found.values()),
    )
    requests = kubernetes.get(f"/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/certificaterequests")["items"]
    named = [request["spec"].get("username") for request in requests]
    claim(
        "docs/kubernetes/tried.md",
        "the webhook writes into each request who made it",
        f"{len(named)} requests of {', '.join(sorted(set(map(str, named))))}",
        named and set(named) == {"admin"},
    )
    tested = kubernetes.ran("helm", "--namespace", NAMESPACE, "test", "trawl", "--logs")
    # The test's pod belongs to no release; it stays for its log.
    kubernetes.do("kubectl", "--namespace", NAMESPACE, "delete", "pod", "trawl-test")
    claim(PAGE, "`helm test` with certificates of cert-manager", f"exit code {tested.returncode}", tested.returncode == 0)
    shown = secret_files(stage, "trawl-client-tls")
    stage.address = stage.address.replace("http:", "https:")
    asked = ("scan", "--dataset", "market", "--where", "close > sma(close, 20)", *OUTPUT)
    ask = lambda: stage.ran(*asked, "--fresh", "--coordinator", stage.address, *shown)
    expected, answer = stage.ran(*asked).stdout, ask()
    without = stage.ran(*asked, "--fresh", "--coordinator", stage.address, "--tls-ca", shown[1])
    claim(
        PAGE,
        "a scan with the client's certificate; none without one",
        f"{len(answer.stdout)} bytes, {'equal' if answer.stdout == expected else answer.stderr[-200:] or 'different'}; exit code {without.returncode} without one",
        answer.stdout == expected and without.returncode != 0,
    )
    before, restarts = served(stage, shown), restarted(stage)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    # What `cmctl renew` does.
    condition = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "renewed by hand", "lastTransitionTime": now}
    at = f"/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/certificates/trawl-coordinator-tls"
    conditions = [c for c in kubernetes.get(at)["status"]["conditions"] if c["type"] != "Issuing"] + [condition]
    patch = json.dumps({"status": {"conditions": conditions}})
    began = time.monotonic()
    kubernetes.do("kubectl", "--namespace", NAMESPACE, "patch", "certificate", "trawl-coordinator-tls", "--subresource=status", "--type=merge", "--patch", patch)
    answers = []

    def renewed():
        answers.append(ask().stdout == expected)
        return served(stage, shown) not in ("", before)

    wait_for("the new certificate is shown", renewed, RENEWED_SECONDS)
    took = time.monotonic() - began
    logs = kubernetes.do("kubectl", "--namespace", NAMESPACE, "logs", "--selector=app.kubernetes.io/component=coordinator", "--tail=-1")
    claim(
        PAGE,
        "a renewed certificate is in use without a restart, while scans run",
        f"shown {took:.0f} s after the renewal, {restarted(stage) - restarts} restarts; {sum(answers)} of {len(answers)} scans with equal bytes; "
        f"the log says so: {bool(re.search('new certificates are in use', logs))}",
        all(answers) and restarted(stage) == restarts,
    )
    from_zero(stage, path, shown, asked, expected)


def from_zero(stage, path, shown, asked, expected):
    """Workers scaled by KEDA over TLS, with tokens, as production has it."""
    where, said = "docs/kubernetes/scale.md", "`keda` over TLS, with tokens: from zero and to zero, by the client's certificate of the release"
    kubernetes = stage.kubernetes
    if not kubernetes.programs["keda"]:
        stage.claims.skip(where, said, "no keda: tools/get-keda builds it")
        return
    autoscale.keda_processes(stage)
    secured.users(stage)
    scaled = stage.folder / "issued-keda.json"
    values = {"tokens": {"existingSecret": "users"}, "tests": {"tokenSecret": "alice"}, "worker": {"autoscaling": autoscale.KEDA}}
    scaled.write_text(json.dumps(values))
    stage.install("trawl", "--values", path, "--values", scaled, verb="upgrade")
    address = stage.address.replace("http:", "https:")
    wait_for("no worker without work", lambda: not stage.pods("worker"), autoscale.SCALE_SECONDS)
    began = time.monotonic()
    answer = stage.ran(*asked, "--fresh", "--coordinator", address, *shown, "--token-file", stage.folder / "token")
    took = time.monotonic() - began
    wait_for("no worker again", lambda: not stage.pods("worker"), autoscale.SCALE_SECONDS)
    objects = kubernetes.get(f"/apis/keda.sh/v1alpha1/namespaces/{NAMESPACE}/scaledobjects")["items"]
    conditions = {c["type"]: c["status"] for c in objects[0]["status"]["conditions"]}
    triggers = objects[0]["spec"]["triggers"]
    plain = [t for t in triggers if "authenticationRef" not in t]
    stage.claims.add(
        where,
        said,
        f"a scan that waited for its first worker: {took:.0f} s, {'equal bytes' if answer.stdout == expected else answer.stderr[-200:] or 'other bytes'}; "
        f"none again; {len(triggers)} triggers, {len(plain)} without a TriggerAuthentication; ScaledObject ready: {conditions.get('Ready')}",
        answer.stdout == expected and not plain and conditions.get("Ready") == "True",
    )


def restarted(stage):
    return sum(p["status"]["containerStatuses"][0]["restartCount"] for p in stage.pods("coordinator").values())
