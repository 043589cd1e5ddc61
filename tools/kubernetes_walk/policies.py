"""NetworkPolicies, enforced by Kubernetes' own agent: who reaches whom, tried in the network namespaces of the pods themselves."""

import ipaddress
import json
import subprocess
import sys

from network import DNS, GATEWAY
from processes import wait_for
from stage import CHART, NAMESPACE, OUTPUT, UP_SECONDS, USER

PAGE = "docs/kubernetes/install.md"
GRPC, HTTP, WORK, HEALTH, METRICS, ETCD, OWN_ETCD, API = 7400, 7410, 7500, 9465, 9464, 2379, 2479, 6443
# A packet that a policy refuses gets no answer.
PATIENCE_SECONDS = 3
USERS, MONITORING = "users", "monitoring"
BYSTANDER = "localhost/bystander:1"
ASKED = ("scan", "--dataset", "demo", "--where", "close > sma(close, 20)", *OUTPUT)
# A question for the address of kubernetes.default.svc.cluster.local.
QUESTION = b"\1\1\1\0\0\1\0\0\0\0\0\0\nkubernetes\7default\3svc\7cluster\5local\0\0\1\0\1"
TRY = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
targets, patience, question = json.loads(sys.argv[1])
def reached(target):
    host, port = target
    kind = socket.SOCK_DGRAM if port < 0 else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as to:
        to.settimeout(patience)
        try:
            to.connect((host, abs(port)))
            if port < 0:
                to.send(bytes(question))
                to.recv(4096)
            return True
        except OSError:
            return False
with ThreadPoolExecutor(32) as threads:
    print(json.dumps(list(threads.map(reached, targets))))
"""


def reached(pod, targets):
    """Which of the targets, `name: (host, port)`, a pod reaches; a negative port is of UDP, where a question for a name is answered."""
    address = ipaddress.ip_address(pod["status"]["podIP"]).packed
    # As the runtime numbers them.
    namespace = f"n{address[2]}p{address[3] - 1}"
    question = json.dumps([list(targets.values()), PATIENCE_SECONDS, list(QUESTION)])
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", TRY, question]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name for name, found in zip(targets, json.loads(said), strict=True) if found}


def confined():
    """What a container needs in a namespace of the standard `restricted`."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, "runAsUser": USER}
    return security | {"seccompProfile": {"type": "RuntimeDefault"}}


def start_pod(stage, namespace, name, image, arguments=(), labels=None):
    container = {"name": "it", "image": image, "args": list(arguments), "securityContext": confined()}
    stage.kubernetes.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
        }
    )


def bystander(stage, namespace, labels=None):
    """A pod that only waits, and can try to reach others."""
    kubernetes = stage.kubernetes
    at = f"/api/v1/namespaces/{namespace}/pods/bystander"
    if not kubernetes.get(f"/api/v1/namespaces/{namespace}"):
        kubernetes.do("kubectl", "create", "namespace", namespace)
    # Nobody starts a lone pod again whose node failed, and the walk makes one fail.
    if kubernetes.get(at).get("status", {}).get("phase") in ("Failed", "Succeeded", "Unknown"):
        kubernetes.do("kubectl", "--namespace", namespace, "delete", "pod", "bystander")
    if not kubernetes.get(at):
        kubernetes.images(**{BYSTANDER: {"files": {"/usr/bin/sleep": "/usr/bin/sleep"}, "entrypoint": ["/usr/bin/sleep", "infinity"], "user": USER}})
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        wait_for("the namespace has its account", lambda: kubernetes.get(account), UP_SECONDS)
        start_pod(stage, namespace, "bystander", BYSTANDER, labels=labels)
    return wait_for("the bystander runs", lambda: (pod := kubernetes.get(at)).get("status", {}).get("phase") == "Running" and pod, UP_SECONDS)


def one(stage, component):
    """A ready pod of a component of the release."""
    return stage.pods(component)[stage.ready(component)[0]]


def said(allowed, wanted):
    """What was reached, and what that should not have been or should have been."""
    more, less = sorted(allowed - wanted), sorted(wanted - allowed)
    wrong = f"; reached although denied: {', '.join(more)}" if more else ""
    wrong += f"; not reached although allowed: {', '.join(less)}" if less else ""
    return (", ".join(sorted(allowed)) or "nothing") + wrong


def enforced(stage):
    return stage.kubernetes.programs["network-policies"]


def trial(stage):
    """The etcd of a trial is for coordinators and workers alone; its pod reaches nothing."""
    of = {component: one(stage, component) for component in ("etcd", "coordinator", "worker")}
    etcd = {"etcd": (of["etcd"]["status"]["podIP"], ETCD)}
    outside = {"the API server": (GATEWAY, API), "DNS": (DNS, -53), "a coordinator": (of["coordinator"]["status"]["podIP"], GRPC)}
    inside = bystander(stage, NAMESPACE)
    wanted = {"a coordinator", "a worker"}
    pods = {"a coordinator": of["coordinator"], "a worker": of["worker"], "a pod of the namespace": inside, "a pod elsewhere": bystander(stage, USERS)}
    allowed = {name for name, pod in pods.items() if reached(pod, etcd)}
    out = reached(of["etcd"], outside)
    stage.claims.add(
        PAGE,
        "the etcd of a trial: coordinators and workers reach it, nobody else; it reaches nothing",
        f"reached by {said(allowed, wanted)}; of {len(outside)} addresses it reaches {said(out, set())}",
        allowed == wanted and not out,
    )
    stage.kubernetes.do("kubectl", "--namespace", NAMESPACE, "delete", "pod", "bystander")


def policies(stage):
    """From every kind of pod to every port."""
    inside, elsewhere, monitoring = bystander(stage, NAMESPACE), bystander(stage, USERS), bystander(stage, MONITORING)
    # Of two, one is asked and the other asks.
    pods = {component: [stage.pods(component)[name] for name in stage.ready(component)] for component in ("coordinator", "worker")}
    asked = {component: found[0]["status"]["podIP"] for component, found in pods.items()}
    ports = {"coordinator": (GRPC, HTTP, METRICS, HEALTH), "worker": (WORK, METRICS, HEALTH)}
    targets = {f"{component} {port}": (asked[component], port) for component in ports for port in ports[component]}
    outside = {"etcd": (GATEWAY, OWN_ETCD), "DNS": (DNS, 53), "DNS by UDP": (DNS, -53)}
    found = stage.kubernetes.get("/api/v1/namespaces/kube-system/pods?labelSelector=k8s-app=kube-dns")["items"]
    names = next(pod["status"]["podIP"] for pod in found if pod["status"]["phase"] == "Running")
    denied = {"the API server": (GATEWAY, API), "its service": ("10.96.0.1", 443), "another port of CoreDNS": (names, 8181)}
    scraped = {f"{component} {METRICS}" for component in ports}
    wanted = {
        "a pod of the namespace": (inside, {f"coordinator {GRPC}", f"coordinator {HTTP}"} | scraped),
        "a pod of another namespace": (elsewhere, scraped),
        "a pod where Prometheus may be": (monitoring, scraped),
        "a coordinator": (pods["coordinator"][1], {f"coordinator {GRPC}", f"worker {WORK}"} | set(outside)),
        "a worker": (pods["worker"][1], set(outside)),
    }
    for name, (pod, right) in wanted.items():
        found = reached(pod, targets | (outside | denied if name in ("a coordinator", "a worker") else {}))
        stage.claims.add(PAGE, f"NetworkPolicies: what {name} reaches", said(found, right), found == right)
    clients(stage, inside, targets)
    without(stage, elsewhere, targets)


def scan_from(stage, name):
    """A scan by a pod of the image of the command line in another namespace: its exit code and what it printed."""
    kubernetes = stage.kubernetes
    words = [*ASKED, "--fresh", "--coordinator", f"http://trawl-coordinator.{NAMESPACE}.svc:{GRPC}", "--insecure"]
    start_pod(stage, USERS, name, "localhost/trawl/cli:0.1.0", words)
    state = lambda: kubernetes.get(f"/api/v1/namespaces/{USERS}/pods/{name}").get("status", {})
    ended = lambda: state().get("phase") in ("Succeeded", "Failed") and state()["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    wait_for("the scan of another namespace ends", lambda: ended() is not False, UP_SECONDS)
    code = ended()
    return code, kubernetes.do("kubectl", "--namespace", USERS, "logs", name)


def clients(stage, inside, targets):
    """`networkPolicy.clients` names another namespace."""
    refused, _ = scan_from(stage, "before")
    may = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": USERS}}}]
    path = stage.folder / "clients.json"
    path.write_text(json.dumps({"networkPolicy": {"clients": may}}))
    stage.install("trawl", "--values", stage.values, "--values", path, verb="upgrade")
    expected = stage.ran(*ASKED).stdout
    code, printed = scan_from(stage, "after")
    found, right = reached(inside, targets), {f"coordinator {METRICS}", f"worker {METRICS}"}
    # The log has both streams: warnings are of the other one.
    answer = "".join(line for line in printed.splitlines(keepends=True) if " WARN " not in line)
    stage.claims.add(
        PAGE,
        "`networkPolicy.clients`: who may submit scans",
        f"a pod of another namespace: exit code {refused} before, then {code} with {'equal' if answer == expected else 'other'} bytes; "
        f"a pod of the release's namespace then reaches {said(found, right)}",
        refused != 0 and code == 0 and answer == expected and expected and found == right,
    )


def without(stage, elsewhere, targets):
    """The same questions without policies: that they were answered by policies, and not by anything else."""
    stage.helm("upgrade", "trawl", CHART, "--values", stage.values, "--set", "networkPolicy.enabled=false", "--wait", "--timeout", f"{UP_SECONDS}s")
    found = reached(elsewhere, targets)
    stage.claims.add(PAGE, "`networkPolicy.enabled=false`: a pod of another namespace reaches everything", said(found, set(targets)), found == set(targets))
    stage.install("trawl", "--values", stage.values, verb="upgrade")
