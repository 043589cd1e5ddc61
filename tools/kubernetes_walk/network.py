"""What carries packets and names between pods: a bridge, kube-proxy and CoreDNS as they are released, and an agent that enforces
NetworkPolicies where one was built."""

import os
import pathlib
import socket

from processes import wait_for

BRIDGE, GATEWAY = "pods", "10.244.0.1"
PODS, SERVICES, DNS = "10.244.0.0/16", "10.96.0.0/16", "10.96.0.10"
API_PORT = 6443
UP_SECONDS = 120
# The agent's own number by default.
QUEUE = 100
QUEUES = pathlib.Path("/proc/net/netfilter/nfnetlink_queue")
ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
COREDNS = "localhost/coredns:1.15.0"
COREFILE = f"""
.:53 {{
    errors
    ready :8181
    kubernetes cluster.local in-addr.arpa {{
        pods insecure
    }}
    cache 5
}}
"""
DNS_LABELS = {"k8s-app": "kube-dns"}


def make(run, folder):
    """A bridge for pods, over which this machine routes: pods know no neighbours. Names are the cluster's."""
    # Only a machine where somebody has named a network namespace has the folder.
    pathlib.Path("/run/netns").mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
    for step in (
        "link set lo up",
        f"link add {BRIDGE} type bridge",
        f"address add {GATEWAY}/16 dev {BRIDGE}",
        f"link set {BRIDGE} up",
        # kube-proxy leads elsewhere what is sent to a ClusterIP from here; it has to be sent first.
        f"route add {SERVICES} dev {BRIDGE} src {GATEWAY}",
    ):
        run("ip", *step.split())
    settings = pathlib.Path("/proc/sys/net/ipv4")
    (settings / "ip_forward").write_text("1")
    # Pods are not advised to reach one another without this machine.
    for name in ("all", BRIDGE):
        (settings / "conf" / name / "send_redirects").write_text("0")
    names = folder / "resolv.conf"
    names.write_text(f"nameserver {DNS}\nsearch svc.cluster.local cluster.local\noptions ndots:5\n")
    run("mount", "--bind", names, os.path.realpath("/etc/resolv.conf"))


def commands(folder):
    """Variables with which the programs nft and iptables-nft of a folder run, and what calls them."""
    libraries = [str(path) for path in pathlib.Path(folder, "usr/lib").glob("*-linux-gnu")]
    search = [f"{folder}/usr/sbin", os.environ["PATH"]]
    found = {"PATH": ":".join(search), "LD_LIBRARY_PATH": ":".join(libraries)}
    return found | {"XTABLES_LIBDIR": ":".join(f"{path}/xtables" for path in libraries)}


def start_proxy(kubernetes):
    """One kube-proxy for all nodes, which share this machine's network."""
    command = [kubernetes.programs["kubernetes"], "kube-proxy", "--kubeconfig", kubernetes.configs["services"], "--proxy-mode=nftables"]
    command += [f"--cluster-cidr={PODS}", "--masquerade-all=false", f"--hostname-override={kubernetes.nodes[0].name}"]
    command += ["--conntrack-max-per-core=0", "--conntrack-min=0", "--metrics-bind-address=127.0.0.1:10249"]
    command += ["--healthz-bind-address=127.0.0.1:10256", "--nodeport-addresses=127.0.0.0/8"]
    kubernetes.start_process("kube-proxy", command, **commands(kubernetes.programs["netfilter"]))


def start_policies(kubernetes, run):
    """The agent of NetworkPolicies: the first packet of every connection from or to a pod waits for its answer. Its own rules need
    nftables' queues, which kernels may lack; iptables has the same queue. Nothing passes without it, once this has returned."""
    program = kubernetes.programs["network-policies"]
    if not program:
        return
    # It reads no kubeconfig: it is a pod elsewhere.
    ACCOUNT.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", ACCOUNT)
    (ACCOUNT / "token").write_text(kubernetes.tokens[0][0])
    (ACCOUNT / "ca.crt").write_bytes((kubernetes.pki / "ca.crt").read_bytes())
    variables = commands(kubernetes.programs["netfilter"])
    at = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(API_PORT)}
    command = [program, f"--nfqueue-id={QUEUE}", "--netfilter-bug-1766-fix=false", f"--hostname-override={kubernetes.nodes[0].name}"]
    kubernetes.start_process("network-policies", [*command, "--metrics-bind-address=127.0.0.1:9080"], **variables, **at)
    listens = lambda: QUEUES.exists() and any(line.split()[0] == str(QUEUE) for line in QUEUES.read_text().splitlines())
    wait_for("the agent of NetworkPolicies has its queue", listens, UP_SECONDS)
    # Between pods, and from pods to this machine's addresses, which are those of other machines to them. Nodes may reach every pod.
    for chain in (("FORWARD",), ("INPUT", "-i", BRIDGE)):
        rule = [*chain, "-m", "conntrack", "--ctstate", "NEW", "-j", "NFQUEUE", "--queue-num", QUEUE]
        run("iptables-nft", "-I", *rule, env=os.environ | variables)


def start_names(kubernetes):
    """CoreDNS as two pods behind the service kube-dns, as kubeadm installs it."""
    kubernetes.images(**{COREDNS: {"files": {"/coredns": str(kubernetes.programs["coredns"])}, "entrypoint": ["/coredns"], "user": 0}})
    meta = lambda name: {"name": name, "namespace": "kube-system", "labels": DNS_LABELS}
    read = [{"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]}]
    read += [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]
    ports = {"dns": ("UDP", 53), "dns-tcp": ("TCP", 53)}
    container = {
        "name": "coredns",
        "image": COREDNS,
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [{"name": name, "protocol": protocol, "containerPort": port} for name, (protocol, port) in ports.items()],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 2},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
    }
    pod = {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": DNS_LABELS}}
        ],
    }
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"}
    kubernetes.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("coredns")},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role["name"]}, "rules": read},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role["name"]},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("coredns"), "data": {"Corefile": COREFILE}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta("coredns"),
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": DNS_LABELS},
                "template": {"metadata": {"labels": DNS_LABELS}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta("kube-dns"),
            "spec": {
                "clusterIP": DNS,
                "selector": DNS_LABELS,
                "ports": [{"name": name, "protocol": protocol, "port": port} for name, (protocol, port) in ports.items()],
            },
        },
    )
    wait_for("CoreDNS answers", lambda: resolves("kubernetes.default.svc.cluster.local"), UP_SECONDS)


def resolves(name):
    try:
        return socket.gethostbyname(name)
    except OSError:
        return None
