"""Where pods run, what users add to them, and how releases share a cluster; further cases of `helm_chart.py branches`."""

import json
import pathlib
import tempfile

import helm_lookup
import yaml
from helm_refusals import arguments

# A component, the prefix of its values, and a set of values that has its pod.
PODS = [
    ("coordinator", "coordinator", "production"),
    ("worker", "worker", "production"),
    ("import", "import", "production"),
    ("test", "tests", "production"),
    ("etcd", "etcd.trial", "single"),
]
CONFINED = {
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
}


def branches(helm, check, chart):
    count = 0

    def rendered(base, *sets):
        nonlocal count
        count += 1
        return helm.template(*arguments(chart, base, sets))

    def same(found, wanted, what):
        check(found == wanted, f"{what}: {found}, not {wanted}")

    def spec_of(r, component):
        found = [s for _, m, s in r.pods() if m["labels"]["app.kubernetes.io/component"] == component]
        return found[0]

    scheduling(rendered, same, check, spec_of)
    trial_etcd(rendered, check, spec_of)
    certificates_for_etcd(rendered, same, check, spec_of)
    additions(rendered, same, check, spec_of)
    network(helm, rendered, same, check)
    releases(chart, rendered, same, check, spec_of)
    service(rendered, same)
    with tempfile.TemporaryDirectory() as folder:
        count += helm_lookup.checksums(helm, check, chart, pathlib.Path(folder))
    return f"{count} of pods and releases"


def scheduling(rendered, same, check, spec_of):
    for component, prefix, base in PODS:
        r = rendered(
            base,
            f'{prefix}.nodeSelector={{"pool":"trawl"}}',
            f'{prefix}.tolerations=[{{"key":"team","operator":"Exists"}}]',
            f'{prefix}.affinity={{"nodeAffinity":{{}}}}',
            f'{prefix}.priorityClassName="important"',
            f'{prefix}.serviceAccount={{"name":"account-{component}","annotations":{{"role":"r"}}}}',
        )
        spec = spec_of(r, component)
        same(
            {k: spec.get(k) for k in ("nodeSelector", "tolerations", "affinity", "priorityClassName")},
            {
                "nodeSelector": {"pool": "trawl"},
                "tolerations": [{"key": "team", "operator": "Exists"}],
                "affinity": {"nodeAffinity": {}},
                "priorityClassName": "important",
            },
            f"scheduling of {component}",
        )
        same(spec["serviceAccountName"], f"account-{component}", f"account of {component}")
        account = r.of("ServiceAccount", f"account-{component}")
        check(account and account["metadata"]["annotations"] == {"role": "r"}, f"{component}: its account is not there")
        r = rendered(base, f'{prefix}.serviceAccount={{"create":false,"name":"there"}}')
        same(spec_of(r, component)["serviceAccountName"], "there", f"existing account of {component}")
        check(r.of("ServiceAccount", "there") is None, f"{component}: an existing account is created")
    # Nothing is set where nothing is given, and no pod runs as the namespace's default account.
    r = rendered("single")
    for component in ("coordinator", "worker", "test", "etcd"):
        spec = spec_of(r, component)
        found = {"nodeSelector", "tolerations", "affinity", "priorityClassName"} & set(spec)
        check(not found, f"{component}: {found}")
        check(r.of("ServiceAccount", spec["serviceAccountName"]), f"{component}: no account")
    # Priority classes are global: the same release in another namespace has others.
    classes = [o["metadata"]["name"] for o in rendered("production").objects if o["kind"] == "PriorityClass"]
    same(sorted(classes), ["ns.rel-trawl-coordinator", "ns.rel-trawl-worker"], "priority classes")
    own = '[{"maxSkew":2,"topologyKey":"rack","whenUnsatisfiable":"DoNotSchedule"}]'
    r = rendered("trial", f"worker.topologySpreadConstraints={own}")
    same(spec_of(r, "worker")["topologySpreadConstraints"], json.loads(own), "spread as given")
    same(len(spec_of(r, "coordinator")["topologySpreadConstraints"]), 2, "of workers only")


def trial_etcd(rendered, check, spec_of):
    """Its quota is below the size of its volume: a full volume is worse than a full etcd."""
    for sets, wanted in (([], 512 << 20), (['etcd.trial.storage=""'], 1 << 30), (['etcd.trial.storage="8Gi"'], 4 << 30)):
        arguments = spec_of(rendered("trial", *sets), "etcd")["containers"][0]["args"]
        check(f"--quota-backend-bytes={wanted}" in arguments, f"the quota of etcd with {sets}: {arguments}")


def certificates_for_etcd(rendered, same, check, spec_of):
    """Those of your own etcd: from its issuer, from Secrets, or Trawl's own where etcd has roles."""
    empty = '"caSecret":"","coordinatorSecret":"","workerSecret":""'

    def volume(r, component):
        return next((v for v in spec_of(r, component)["volumes"] if v["name"] == "etcd-tls"), None)

    r = rendered("production", 'etcd.tls={%s,"issuerRef":{"name":"etcd-clients","kind":"ClusterIssuer"}}' % empty)
    for component in ("coordinator", "worker"):
        made = r.of("Certificate", f"-{component}-etcd")["spec"]
        same(made["issuerRef"]["name"], "etcd-clients", f"issuer of {component}'s certificate for etcd")
        same(made["commonName"], f"rel-trawl-{component}", "the name that etcd's roles know")
        same(made["usages"], ["digital signature", "client auth"], "it serves nothing")
        check("uris" not in made, f"{component}'s certificate for etcd is one of Trawl's roles")
        sources = [s["secret"]["name"] for s in volume(r, component)["projected"]["sources"]]
        same(sources, [f"rel-trawl-{component}-etcd"] * 2, "one Secret with key and CA")
    r = rendered("production")
    sources = [s["secret"]["name"] for s in volume(r, "worker")["projected"]["sources"]]
    same(sources, ["trawl-etcd-worker", "etcd-ca"], "a worker's Secret and the CA's")
    check(not [o for o in r.objects if o["metadata"]["name"].endswith("-etcd")], "certificates beside those given")
    r = rendered("production", 'etcd.tls={%s,"trustsTrawlCa":true}' % empty)
    found = [k for c in ("coordinator", "worker") for k in r.config(c) if k.startswith("TRAWL_ETCD_C")]
    check(not found and volume(r, "worker") is None, f"Trawl's own certificates are given as {found}")
    r = rendered("trial")
    check(volume(r, "coordinator") is None, "plain text takes no certificate for etcd")


def additions(rendered, same, check, spec_of):
    sidecar = '[{"name":"s","image":"r.example.org/s:1","securityContext":{"readOnlyRootFilesystem":false,"runAsUser":7}}]'
    for component in ("coordinator", "worker"):
        r = rendered(
            "trial",
            f'{component}.extraArgs=["--etcd-timeout-s=7"]',
            f'{component}.extraEnvFrom=[{{"secretRef":{{"name":"vendor"}}}}]',
            f'{component}.initContainers=[{{"name":"i","image":"r.example.org/i:1"}}]',
            f"{component}.sidecars={sidecar}",
            f'{component}.extraPodSpec={{"dnsConfig":{{"options":[{{"name":"ndots","value":"1"}}]}}}}',
            f'{component}.probes={{"startup":{{"failureThreshold":400}},"liveness":{{"periodSeconds":30}}}}',
        )
        spec = spec_of(r, component)
        first, second = spec["containers"]
        same(first["args"], [component, "--etcd-timeout-s=7"], f"arguments of {component}")
        same(first["envFrom"][-1], {"secretRef": {"name": "vendor"}}, f"environment of {component}")
        same(spec["initContainers"][0]["securityContext"], CONFINED, f"{component}: who runs before is confined")
        wanted = CONFINED | {"readOnlyRootFilesystem": False, "runAsUser": 7}
        same(second["securityContext"], wanted, f"{component}: a sidecar's own security takes precedence")
        same(spec["dnsConfig"]["options"][0]["name"], "ndots", f"{component}: names")
        same(
            (first["startupProbe"]["failureThreshold"], first["startupProbe"]["periodSeconds"]),
            (400, 2),
            f"{component}: a probe with one time replaced",
        )
        same(first["livenessProbe"]["periodSeconds"], 30, f"{component}: another probe")
        same(first["readinessProbe"]["grpc"], {"port": 9465, "service": "ready"}, f"{component}: the third as it was")
        other = spec_of(r, "worker" if component == "coordinator" else "coordinator")
        check(len(other["containers"]) == 1 and "dnsConfig" not in other, f"additions to {component} alone")
        annotations = r.of("Deployment", f"-{component}")["spec"]["template"]["metadata"]["annotations"]
        # Nothing can be looked up here; tests/python/helm_lookup.py shows the other case.
        check("checksum/environment" not in annotations, f"{component}: a checksum of nothing")
    r = rendered(
        "trial",
        'extraObjects=[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"x":"{{ .Release.Name }}"}}},'
        '"apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: {{ include \\"trawl.fullname\\" . }}-b}"]',
    )
    found = {o["metadata"]["name"]: o for o in r.objects if o["kind"] == "ConfigMap"}
    check({"a", "rel-trawl-b"} <= set(found), f"further objects: {sorted(found)}")
    same(found["a"]["metadata"]["labels"]["x"], "rel", "they are templates")


def network(helm, rendered, same, check):
    def ports(r, name):
        return sorted({p["port"] for rule in r.of("NetworkPolicy", name)["spec"]["egress"] for p in rule["ports"]})

    def peers(r, port):
        rules = r.of("NetworkPolicy", "-coordinator")["spec"]["egress"]
        found = [rule for rule in rules if [p["port"] for p in rule["ports"]] == [port]]
        return [p["ipBlock"]["cidr"] for rule in found for p in rule.get("to", [])]

    narrow = ('networkPolicy.objectStore=[{"ipBlock":{"cidr":"10.9.0.0/16"}}]',)
    store = ('results.bucket.environment={"AWS_ENDPOINT_URL":"https://minio:9000"}',)
    for identity, wanted in (
        ("", []),
        ("podIdentity", ["169.254.170.23/32", "fd00:ec2::23/128"]),
        ("metadata", ["169.254.169.254/32", "fd00:ec2::254/128"]),
    ):
        r = rendered("production", f'networkPolicy.objectStoreIdentity="{identity}"', *narrow)
        same(peers(r, 80), wanted, f"identity by '{identity}'")
        same(peers(r, 443), ["10.9.0.0/16"], f"the bucket alone at 443 with '{identity}'")
    r = rendered("production", *store)
    check(443 in ports(r, "-coordinator"), "STS cannot be reached where the bucket is elsewhere")
    check(80 not in ports(rendered("production"), "-coordinator"), "metadata services are open")
    r = rendered("gpu-mig", 'networkPolicy.objectStoreIdentity="podIdentity"')
    check(80 not in ports(r, "-coordinator"), "a release without a bucket reaches the agent")
    rule = '[{"ports":[{"protocol":"TCP","port":8443}],"to":[{"ipBlock":{"cidr":"10.8.0.0/16"}}]}]'
    r = rendered(
        "single",
        "networkPolicy.enabled=true",
        f'networkPolicy.extraEgress={{"coordinator":{rule},"worker":{rule},"test":{rule}}}',
        f'networkPolicy.extraIngress={{"etcd":{rule.replace("to", "from")}}}',
    )
    for name in ("-coordinator", "-worker", "-test"):
        check(8443 in ports(r, name), f"further egress of {name}")
    ingress = [p["port"] for rule in r.of("NetworkPolicy", "-etcd")["spec"]["ingress"] for p in rule["ports"]]
    same(ingress, [2379, 8443], "further ingress of etcd")
    r = rendered("trial", f'networkPolicy.extraIngress={{"worker":{rule.replace("to", "from")}}}')
    ingress = [p["port"] for rule in r.of("NetworkPolicy", "-worker")["spec"]["ingress"] for p in rule["ports"]]
    same(ingress, [7500, 9464, 8443], "further ingress of a worker")


def releases(chart, rendered, same, check, spec_of):
    """Two releases of one cluster, and what KEDA needs of each."""
    keda = 'worker.autoscaling={"kind":"keda","minReplicas":0,"keda":{"scalerAddress":"rel-coordinator.ns.svc:7400"}}'
    r = rendered("production", "coordinator.enabled=false", 'clusterName="prod"', keda)
    client = r.of("Certificate", "-client-tls")
    check(client and client["spec"]["uris"] == ["trawl://client/rel-trawl"], "workers alone: no certificate for KEDA")
    named = {t["name"] for t in r.of("TriggerAuthentication")["spec"]["secretTargetRef"]}
    same(named, {"rel-trawl-client-tls"}, "KEDA's Secret is one that the release makes")
    r = rendered("production", "coordinator.enabled=false", 'clusterName="prod"', 'worker.autoscaling.kind="none"')
    check(r.of("Certificate", "-client-tls") is None, "a client's certificate that nobody uses")
    own = '"keda":{"scalerAddress":"c:7400","clientSecret":"k"}'
    r = rendered("production", "coordinator.enabled=false", 'clusterName="prod"', 'worker.autoscaling={"kind":"keda",%s}' % own)
    check(r.of("Certificate", "-client-tls") is None, "a client's certificate beside the one that is given")

    def timeout(r):
        return r.config("coordinator").get("TRAWL_NO_WORKER_TIMEOUT_S")

    # The coordinators' release does not see the other one's scaler: a value says that there is one.
    def admits_keda(r):
        return '"kubernetes.io/metadata.name": "keda"' in json.dumps(r.of("NetworkPolicy", "-coordinator"))

    fixed = ('worker.autoscaling.kind="none"',)
    r = rendered("production", *fixed)
    check(timeout(r) is None and not admits_keda(r), "no KEDA, nothing for it")
    r = rendered("production", *fixed, "coordinator.kedaOfOtherReleases=true")
    check(timeout(r) == "900" and admits_keda(r), "KEDA of another release")
    r = rendered("production", *fixed, "coordinator.kedaOfOtherReleases=true", "coordinator.config.noWorkerTimeoutS=30")
    same(timeout(r), "30", "an explicit option takes precedence")
    r = rendered("production", "worker.enabled=false")
    check(timeout(r) is None and not admits_keda(r), "a scaler of workers that are left out")
    # The HPA's metric is the one that the example's rule exposes.
    rule = yaml.safe_load((chart / "examples/prometheus-adapter-values.yaml").read_text())["rules"]["external"][0]
    metric = rendered("gpu-gh200").of("HorizontalPodAutoscaler")["spec"]["metrics"][0]["external"]["metric"]
    same(rule["name"]["as"], metric["name"], "the adapter's name of the metric")
    check(set(metric["selector"]["matchLabels"]) <= set(rule["resources"]["overrides"]), f"labels of the HPA: {metric}")
    # A registry in the repository's name is one as well.
    r = rendered(
        "gpu-gh200", 'image.registry=""', 'worker.image.repository="registry.example.org:5000/mine/worker-cuda"'
    )
    same(spec_of(r, "worker")["containers"][0]["image"], "registry.example.org:5000/mine/worker-cuda:0.1.0", "an image")


def service(rendered, same):
    r = rendered(
        "production",
        'coordinator.service={"type":"LoadBalancer","loadBalancerClass":"service.k8s.aws/nlb",'
        '"loadBalancerSourceRanges":["10.0.0.0/8","fd00::/8"],"externalTrafficPolicy":"Local"}',
    )
    spec = r.of("Service", "-coordinator")["spec"]
    same(
        (spec["loadBalancerClass"], spec["loadBalancerSourceRanges"], spec["externalTrafficPolicy"]),
        ("service.k8s.aws/nlb", ["10.0.0.0/8", "fd00::/8"], "Local"),
        "the load balancer",
    )
    spec = rendered("production").of("Service", "-coordinator")["spec"]
    same(set(spec), {"type", "selector", "ports"}, "nothing of it otherwise")
