"""Certificates from cert-manager: the chart's own authorities, an etcd that demands them, and their renewal while scans run."""

import base64
import json
import pathlib
import re
import subprocess
import time

from processes import wait_for
from stage import NAMESPACE, OUTPUT, UP_SECONDS

PAGE = "docs/kubernetes/install.md"
# The kubelet brings a changed Secret into a pod within a minute or two, Trawl looks every few seconds.
RENEWED_SECONDS = 240


def controllers(stage):
    """cert-manager's controllers, as a process beside the nodes, with the rights of an administrator."""
    kubernetes, folder = stage.kubernetes, stage.kubernetes.programs["cert-manager"]
    for path in sorted(pathlib.Path(folder, "resources").glob("*.yaml")):
        kubernetes.do("kubectl", "create", "-f", path)
    for name in ("certificates", "issuers"):
        kubernetes.do("kubectl", "wait", "--for=condition=Established", f"crd/{name}.cert-manager.io", "--timeout=60s")
    kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cert-manager"}})
    kubernetes.start_process("cert-manager", [f"{folder}/controller", "--kubeconfig", kubernetes.configs["admin"]])


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
    if not kubernetes.programs["cert-manager"]:
        print("SKIPPED: no cert-manager: tools/get-cert-manager builds it")
        return
    stage.uninstall()
    controllers(stage)
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


def restarted(stage):
    return sum(p["status"]["containerStatuses"][0]["restartCount"] for p in stage.pods("coordinator").values())
