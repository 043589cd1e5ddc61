"""The effects of single values of the chart; the cases of `helm_chart.py branches`."""

import json
import pathlib
import shutil
import tempfile

from helm_refusals import arguments

# NOTES.txt is printed only by an installation, which needs a cluster: a copy of the chart renders it into a ConfigMap.
NOTES = """
apiVersion: v1
kind: ConfigMap
metadata: {name: notes, labels: {app.kubernetes.io/component: notes}}
data: {notes: {{ tpl (.Files.Get "NOTES.txt") . | quote }}}
"""


def notes(helm, check, chart):
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "trawl"
        shutil.copytree(chart, copy)
        shutil.copy(chart / "templates/NOTES.txt", copy / "NOTES.txt")
        (copy / "templates/notes.yaml").write_text(NOTES)

        def notes_of(base, *sets):
            rendered = helm.template(*arguments(chart, base, sets), chart=copy)
            return rendered.config("notes")["notes"]

        trial, production, workers = notes_of("trial"), notes_of("production"), notes_of("gpu-gh200")
        keda = 'worker.autoscaling={"kind":"keda","minReplicas":0,"keda":{"scalerAddress":"c:7400","clientSecret":"k"}}'
        split = notes_of("gpu-gh200", keda)
    for word in ("NOT FOR PRODUCTION", "etcd.endpoints", "tls.mode", "results.kind", "helm -n ns test rel --logs"):
        check(word in trial, f"the notes of a trial do not say '{word}':\n{trial}")
    check("trawl scan --coordinator http://127.0.0.1:7400" in trial, f"the notes do not say how to scan:\n{trial}")
    check("NOT FOR PRODUCTION" not in production, production)
    for word in ("secret rel-trawl-client-tls", "--coordinator https://127.0.0.1:7400", "scaled by keda, 0 to 40"):
        check(word in production, f"the notes of production do not say '{word}':\n{production}")
    check("--token-file" in production and "--token-file" not in trial, f"tokens in the notes:\n{production}")
    for word in ("defaultBackend=cuda", "kedaOfOtherReleases=true", "KEDA verifies host names"):
        check(word in split, f"the notes of GPU workers that KEDA scales do not say '{word}':\n{split}")
        check(word not in production + workers, f"notes say '{word}' for nothing")
    check("port-forward" not in workers and "'prod'" in workers, f"the notes of workers alone:\n{workers}")


def datasets_in_a_bucket(rendered, check, same):
    """Nothing is shared: no claim, copies on the node, the bucket's environment and keys for all that read or write bars."""
    r = rendered(
        "production",
        'data.kind="bucket"',
        'data.bucket.url="s3://bars/eod"',
        "data.bucket.cacheBytes=1073741824",
        'data.bucket.environment={"AWS_REGION":"eu-central-1","AWS_ENDPOINT_URL":"https://minio:9000"}',
        'data.bucket.existingSecret="bars"',
    )
    wanted = {
        "AWS_ENDPOINT_URL": "https://minio:9000",
        "AWS_REGION": "eu-central-1",
        "TRAWL_DATA_CACHE": "/var/lib/trawl/data",
        "TRAWL_DATA_CACHE_BYTES": "1073741824",
        "TRAWL_DATA_ROOT": "s3://bars/eod",
    }
    for name in ("coordinator", "worker", "import"):
        if name == "import":
            pod = r.of("CronJob", "-import")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        else:
            pod = r.of("Deployment", f"-{name}")["spec"]["template"]["spec"]
        container = pod["containers"][0]
        if name == "import":
            given = {entry["name"]: entry.get("value") for entry in container["env"]}
        else:
            given = r.config(name)
        same({key: given.get(key) for key in wanted}, wanted, f"{name}: the bucket")
        check({"secretRef": {"name": "bars"}} in container["envFrom"], f"{name}: its keys")
        mounts = {m["name"]: m for m in container["volumeMounts"]}
        check(not mounts["data"].get("readOnly") and "subPath" not in mounts["data"], f"{name}: copies cannot be written")
        volumes = {v["name"]: v for v in pod["volumes"]}
        same(volumes["data"], {"name": "data", "emptyDir": {"sizeLimit": "5368709120"}}, f"{name}: where copies are")
        ports = [p["port"] for rule in r.of("NetworkPolicy", f"-{name}")["spec"]["egress"] for p in rule["ports"]]
        check(9000 in ports, f"{name} cannot reach the bucket")
    for url, endpoint in (
        ("gs://bars/eod", ("GOOGLE_BASE_URL", "https://gcs:4443")),
        ("az://bars/eod", ("AZURE_STORAGE_ENDPOINT", "https://azurite:4443")),
    ):
        environment = f'data.bucket.environment={{"{endpoint[0]}":"{endpoint[1]}"}}'
        r = rendered("trial", 'data.kind="bucket"', f'data.bucket.url="{url}"', environment)
        given = r.config("worker")
        same((given["TRAWL_DATA_ROOT"], given[endpoint[0]]), (url, endpoint[1]), "a bucket of another provider")
        if r.of("NetworkPolicy", "-worker"):
            ports = [p["port"] for rule in r.of("NetworkPolicy", "-worker")["spec"]["egress"] for p in rule["ports"]]
            check(4443 in ports, f"{url} cannot be reached")
    check(r.of("PersistentVolumeClaim", "-data") is None, "a claim for datasets in a bucket")


def branches(helm, check, chart):
    notes(helm, check, chart)
    count = 0

    def rendered(base, *sets):
        nonlocal count
        count += 1
        return helm.template(*arguments(chart, base, sets))

    def same(found, wanted, what):
        check(found == wanted, f"{what}: {found}, not {wanted}")

    def spec_of(r, component):
        return r.of("Deployment", f"-{component}")["spec"]["template"]["spec"]

    def first(r, component):
        return spec_of(r, component)["containers"][0]

    # The smallest release: only the defaults.
    r = rendered("trial")
    same(
        sorted(r.kinds()),
        sorted(
            {
                "ConfigMap",
                "Deployment",
                "NetworkPolicy",
                "Pod",
                "PodDisruptionBudget",
                "Service",
                "ServiceAccount",
                "StatefulSet",
            }
        ),
        "trial: kinds",
    )
    same(first(r, "coordinator")["image"], "localhost/trawl/coordinator:0.1.0", "an image that was loaded into the nodes")
    c, w = r.config("coordinator"), r.config("worker")
    same(c["TRAWL_ETCD_ENDPOINTS"], "http://rel-trawl-etcd.ns.svc:2379", "trial etcd")
    same((c["TRAWL_CLUSTER_NAME"], w["TRAWL_CLUSTER_NAME"]), ("rel-trawl", "rel-trawl"), "cluster name")
    same((c["TRAWL_INSECURE"], w["TRAWL_INSECURE"]), ("true", "true"), "plain text is allowed explicitly")
    same(c["TRAWL_RESULTS"], "/var/lib/trawl/results", "results on a volume")
    check("TRAWL_RESULTS_SHARED" not in c, "one coordinator's directory is not shared")
    same(r.of("Deployment", "-coordinator")["spec"]["strategy"], {"type": "Recreate"}, "results of one pod: no two at once")
    same(w["TRAWL_CACHE_BYTES"], "2147483648", "a large number keeps its digits")
    same(
        (c["TRAWL_LISTEN"], w["TRAWL_LISTEN"], c["TRAWL_HEALTH"]),
        ("0.0.0.0:7400", "0.0.0.0:7500", "0.0.0.0:9465"),
        "addresses",
    )
    etcd = r.of("StatefulSet", "-etcd")
    check("not for production" in etcd["metadata"]["annotations"]["trawl/purpose"], "the trial etcd says what it is")
    same(r.of("Service", "-coordinator")["spec"]["ports"][0]["appProtocol"], "kubernetes.io/h2c", "plain HTTP/2")
    pod = r.of("Pod", "-test")
    same(pod["metadata"]["annotations"]["helm.sh/hook"], "test", "helm test")
    same(
        [a for a in pod["spec"]["containers"][0]["args"][:3]],
        ["scan", "--coordinator=http://rel-trawl-coordinator.ns.svc:7400", "--dataset=demo"],
        "the scan of helm test",
    )
    same(pod["spec"]["containers"][0]["image"], "localhost/trawl/cli:0.1.0", "its image")

    # Allowed connections, by the network policies alone.
    for source, target, port, wanted in [
        ("test", "coordinator", 7400, True),
        ("coordinator", "coordinator", 7400, True),
        ("coordinator", "worker", 7500, True),
        ("coordinator", "etcd", 2379, True),
        ("worker", "etcd", 2379, True),
        ("worker", "coordinator", 7400, False),
        ("worker", "worker", 7500, False),
        ("test", "worker", 7500, False),
        ("test", "etcd", 2379, False),
        ("coordinator", "worker", 9465, False),
    ]:
        same(helm.reaches(r, source, target, port), wanted, f"{source} to {target} at {port}")

    # Periods follow from the values that the program is given.
    r = rendered(
        "trial",
        "worker.config.drainTimeoutS=300",
        "worker.preStopSeconds=7",
        "coordinator.config.drainTimeoutS=20",
        "coordinator.config.etcdTimeoutS=100",
    )
    same(r.config("worker")["TRAWL_DRAIN_TIMEOUT_S"], "300", "drain timeout")
    same(spec_of(r, "worker")["terminationGracePeriodSeconds"], 300 + 7 + 15, "grace period of a worker")
    same(first(r, "worker")["lifecycle"]["preStop"]["sleep"]["seconds"], 7, "sleep before SIGTERM")
    same(spec_of(r, "coordinator")["terminationGracePeriodSeconds"], 20 + 5 + 15, "grace period of a coordinator")
    same(first(r, "coordinator")["startupProbe"]["failureThreshold"], (100 + 30 + 1) // 2, "startup probe")
    check("lifecycle" not in first(rendered("trial"), "worker"), "no sleep, no hook")

    # Production.
    r = rendered("production")
    c, w = r.config("coordinator"), r.config("worker")
    check(r.of("StatefulSet") is None, "no etcd of ours where there is one")
    check(c["TRAWL_ETCD_ENDPOINTS"].count("https://") == 3, "three etcds")
    same(c["TRAWL_ETCD_CA"], "/etc/trawl/etcd/ca.crt", "etcd's own CA")
    same((c["TRAWL_RESULTS"], c["AWS_REGION"]), ("s3://trawl-results/prod", "eu-central-1"), "the bucket")
    check(
        "envFrom" in first(r, "coordinator") and len(first(r, "coordinator")["envFrom"]) == 1, "a role, no secret of S3"
    )
    check("AWS_REGION" not in w, "workers know nothing of the bucket")
    same((c["TRAWL_SCANS_RUNNING_MAX"], c["TRAWL_RESULTS_KEPT_H"]), ("128", "48"), "options by their names")
    same((c["TRAWL_TOKENS"], "TRAWL_TOKENS" in w), ("/etc/trawl/tokens/tokens", False), "tokens")
    same(c["TRAWL_NO_WORKER_TIMEOUT_S"], "900", "scans wait for the first worker")
    same(
        rendered("production", "worker.autoscaling.minReplicas=1")
        .config("coordinator")
        .get("TRAWL_NO_WORKER_TIMEOUT_S"),
        None,
        "where one is always there, not",
    )
    same(
        rendered("production", "coordinator.config.noWorkerTimeoutS=5").config("coordinator")[
            "TRAWL_NO_WORKER_TIMEOUT_S"
        ],
        "5",
        "an explicit option takes precedence",
    )
    same(c["OTEL_EXPORTER_OTLP_ENDPOINT"], "http://otel-collector.observability.svc:4317", "traces")
    same(first(r, "worker")["image"], "registry.example.org/platform/trawl/worker:0.1.0", "an image of a registry")
    same(spec_of(r, "worker")["imagePullSecrets"], [{"name": "registry"}], "pull secrets")
    data = next(v for v in spec_of(r, "worker")["volumes"] if v["name"] == "data")
    same(data["persistentVolumeClaim"]["claimName"], "market-data", "bars")
    threads = next(v for v in first(r, "worker")["env"] if v["name"] == "TRAWL_THREADS")
    same(threads["valueFrom"]["resourceFieldRef"]["resource"], "requests.cpu", "threads follow the request")
    for component in ("coordinator", "worker"):
        same(spec_of(r, component)["priorityClassName"], f"ns.rel-trawl-{component}", "priority class")
        certificate = r.of("Certificate", f"-{component}-tls")["spec"]
        same(certificate["uris"], [f"trawl://{component}/rel-trawl"], "identity")
        same(
            certificate["issuerRef"],
            {"name": "internal-ca", "kind": "ClusterIssuer", "group": "cert-manager.io"},
            "issuer",
        )
        same(certificate["usages"], ["digital signature", "server auth", "client auth"], "usages")
        volume = next(v for v in spec_of(r, component)["volumes"] if v["name"] == "tls")
        same(volume["secret"]["secretName"], certificate["secretName"], "the certificate is mounted")
    client = r.of("Certificate", "-client-tls")["spec"]
    same(
        (client["uris"], client["usages"]),
        (["trawl://client/rel-trawl"], ["digital signature", "client auth"]),
        "a client's certificate is not for serving",
    )
    check(
        "rel-trawl-coordinator.ns.svc" in r.of("Certificate", "-coordinator-tls")["spec"]["dnsNames"],
        "KEDA compares hosts",
    )
    check(r.of("Issuer") is None, "no CA of ours where there is one")
    annotations = r.of("ServiceAccount", "-coordinator")["metadata"]["annotations"]
    check(any("role-arn" in k for k in annotations), "the coordinator's role")
    check("annotations" not in r.of("ServiceAccount", "-worker")["metadata"], "the worker has none")
    same(
        {c["whenUnsatisfiable"] for c in spec_of(r, "coordinator")["topologySpreadConstraints"]},
        {"DoNotSchedule"},
        "spread",
    )
    job = r.of("CronJob", "-import")["spec"]
    same((job["concurrencyPolicy"], job["timeZone"]), ("Forbid", "America/New_York"), "imports")
    container = job["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    same(container["args"], ["import", "--dataset=us-daily", "--format=yahoo-csv", "/incoming"], "what is imported")
    same(len(r.of("PodMonitor", "-worker")["spec"]["podMetricsEndpoints"]), 1, "scrapes")
    same(r.of("PodMonitor", "-worker")["spec"]["jobLabel"], "app.kubernetes.io/part-of", "the job that rules look for")
    same(c["OTEL_METRICS_EXPORTER"], "none", "metrics are scraped, not sent as well")
    same((c["TRAWL_LOG"], c["TRAWL_LOG_FORMAT"]), ("info", "json"), "logs")
    node = next(v for v in first(r, "worker")["env"] if v["name"] == "TRAWL_NODE")
    same(node["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName", "the node in traces")
    same(r.of("PodMonitor", "-worker")["metadata"]["labels"]["release"], "prometheus", "Prometheus finds it")
    rules = sorted((chart / "files/rules").glob("*.yaml"))
    boards = sorted((chart / "files/dashboards").glob("*.json"))
    found = [o for o in r.objects if o["kind"] == "PrometheusRule"]
    same(len(found), len(rules), "rules")
    check(all(o["spec"].get("groups") for o in found), "rules without groups")
    found = [o for o in r.objects if o["kind"] == "ConfigMap" and "dashboard" in o["metadata"]["name"]]
    same(len(found), len(boards), "dashboards")
    for o in found:
        for text in o["data"].values():
            json.loads(text)
        same(o["metadata"]["labels"]["grafana_dashboard"], "1", "Grafana finds it")

    # What sets the number of workers: one scaler or none.
    check("replicas" not in r.of("Deployment", "-worker")["spec"], "KEDA and the Deployment would both set replicas")
    scaled = r.of("ScaledObject")["spec"]
    same((scaled["minReplicaCount"], scaled["maxReplicaCount"]), (0, 40), "KEDA's bounds")
    same(scaled["triggers"][0]["type"], "external", "KEDA asks the coordinator")
    same(scaled["triggers"][0]["metadata"]["scalerAddress"], "rel-trawl-coordinator.ns.svc:7400", "where")
    same(
        scaled["triggers"][0]["authenticationRef"]["name"],
        r.of("TriggerAuthentication")["metadata"]["name"],
        "with a certificate",
    )
    same(
        {t["name"] for t in r.of("TriggerAuthentication")["spec"]["secretTargetRef"]}, {"rel-trawl-client-tls"}, "whose"
    )
    same(
        scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"],
        300,
        "no flapping",
    )
    asked = scaled["triggers"][0]["metadata"]
    goal = {k: asked[k] for k in ("targetSecondsPerWorker", "holdSeconds", "threadsPerWorker")}
    same(
        goal, {"targetSecondsPerWorker": "60", "holdSeconds": "120", "threadsPerWorker": "8"}, "what KEDA is to ask for"
    )
    asked = rendered("production", 'worker.resources.requests.cpu="2500m"').of("ScaledObject")["spec"]["triggers"][0][
        "metadata"
    ]
    same(asked["threadsPerWorker"], "3", "part of a core is a thread")
    same(asked["backend"], "", "all work counts")
    asked = rendered("production", 'worker.autoscaling.keda.backend="cuda"').of("ScaledObject")["spec"]["triggers"][0]
    same(asked["metadata"]["backend"], "cuda", "work of devices only")
    check(r.of("HorizontalPodAutoscaler") is None, "both scale")
    peers = json.dumps(r.of("NetworkPolicy", "-coordinator")["spec"]["ingress"])
    check('"kubernetes.io/metadata.name": "keda"' in peers, "KEDA may connect")
    r = rendered("trial", 'worker.autoscaling.kind="keda"')
    check(
        r.of("TriggerAuthentication") is None
        and "authenticationRef" not in r.of("ScaledObject")["spec"]["triggers"][0],
        "plain text takes no certificate",
    )
    r = rendered("trial")
    same(r.of("Deployment", "-worker")["spec"]["replicas"], 2, "a number of workers")
    check("keda" not in json.dumps(r.of("NetworkPolicy", "-coordinator")), "KEDA is let in for nothing")
    r = rendered("gpu-gh200")
    hpa = r.of("HorizontalPodAutoscaler")["spec"]
    same(hpa["metrics"][0]["external"]["metric"]["name"], "trawl_work_remaining_seconds", "HPA on work")
    same(
        hpa["metrics"][0]["external"]["target"], {"type": "AverageValue", "averageValue": "1920"}, "60 s of 32 threads"
    )
    same(hpa["scaleTargetRef"]["name"], r.of("Deployment", "-worker")["metadata"]["name"], "of the workers")
    check("replicas" not in r.of("Deployment", "-worker")["spec"] and r.of("ScaledObject") is None, "HPA alone")

    # GPUs.
    worker = spec_of(r, "worker")
    same(first(r, "worker")["image"], "registry.example.org/platform/trawl/worker-cuda:0.1.0", "the CUDA image")
    same(first(r, "worker")["resources"]["limits"], {"memory": "96Gi", "nvidia.com/gpu": 1}, "a device")
    same(
        worker["nodeSelector"], {"kubernetes.io/arch": "arm64", "nvidia.com/gpu.product": "NVIDIA-GH200-480GB"}, "GH200"
    )
    same(worker["tolerations"], [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}], "taints")
    same(worker["runtimeClassName"], "nvidia", "runtime class")
    same(first(r, "worker")["startupProbe"]["failureThreshold"], (60 + 300 + 1) // 2, "a GPU starts slowly")
    same(worker["terminationGracePeriodSeconds"], 60 + 15, "grace period")
    same(
        r.of("Deployment", "-worker")["spec"]["strategy"]["rollingUpdate"],
        {"maxSurge": 0, "maxUnavailable": 1},
        "no device to spare",
    )
    check("ephemeral" in next(v for v in worker["volumes"] if v["name"] == "cache"), "compiled kernels on a volume")
    same(r.config("worker")["TRAWL_CLUSTER_NAME"], "prod", "a cluster of two releases")
    check(
        r.of("Service") is None
        and r.of("Pod") is None
        and not [o for o in r.objects if "coordinator" in o["metadata"]["name"]],
        "workers alone",
    )
    r = rendered("gpu-mig")
    same(first(r, "worker")["resources"]["limits"]["nvidia.com/mig-1g.18gb"], 1, "a slice")
    same(r.config("worker")["TRAWL_THREADS"], "4", "threads as given")
    check(all(v["name"] != "TRAWL_THREADS" for v in first(r, "worker")["env"]), "threads once")
    check(
        r.of("PodDisruptionBudget", "-worker") is None and r.of("PodDisruptionBudget", "-coordinator"), "a budget less"
    )
    same(r.config("coordinator")["TRAWL_LISTEN"], "[::]:7400", "IPv6")
    same(r.config("coordinator")["TRAWL_RESULTS_SHARED"], "true", "a directory that both see")
    one = rendered("gpu-mig", "coordinator.replicas=1")
    same(one.config("coordinator").get("TRAWL_RESULTS_SHARED"), "true", "one coordinator, and the one that takes its place")
    same(one.of("Deployment", "-coordinator")["spec"]["strategy"]["type"], "RollingUpdate", "which may run beside it")
    same(
        {o["spec"]["accessModes"][0] for o in r.objects if o["kind"] == "PersistentVolumeClaim"},
        {"ReadWriteMany"},
        "claims",
    )
    check(
        all(
            o["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
            for o in r.objects
            if o["kind"] == "PersistentVolumeClaim"
        ),
        "bars outlive a release",
    )
    mounts = first(r, "coordinator")["volumeMounts"]
    check(not next(m for m in mounts if m["name"] == "data").get("readOnly"), "a coordinator pins snapshots")
    plain = spec_of(rendered("trial"), "worker")
    check("nvidia" not in json.dumps(plain) and "runtimeClassName" not in plain, "a CPU worker takes no GPU")

    # One of everything.
    r = rendered("single")
    same(r.of("Deployment", "-coordinator")["spec"]["strategy"], {"type": "Recreate"}, "one volume, one pod")
    check("runAsUser" not in spec_of(r, "coordinator")["securityContext"], "the cluster's own users")
    same(spec_of(r, "coordinator")["securityContext"]["runAsNonRoot"], True, "and yet not root")
    check(r.of("NetworkPolicy") is None and not [o for o in r.objects if o["kind"] == "NetworkPolicy"], "no policies")
    check("TRAWL_METRICS" not in r.config("worker") and len(first(r, "worker")["ports"]) == 2, "no metrics")
    check(
        r.of("StatefulSet")["spec"]["template"]["spec"]["containers"][0]["args"].count("--client-cert-auth") == 1,
        "the trial etcd asks for certificates",
    )
    same(r.config("coordinator")["TRAWL_ETCD_ENDPOINTS"], "https://rel-trawl-etcd.ns.svc:2379", "and is asked by TLS")
    check("rel-trawl-etcd.ns.svc" in r.of("Certificate", "-etcd-tls")["spec"]["dnsNames"], "by its name")
    same(len([o for o in r.objects if o["kind"] == "Issuer"]), 4, "a CA for Trawl and one for etcd")
    check(r.of("Certificate", "trawl-ca")["spec"]["isCA"] is True, "a CA")

    # The rest, a value at a time.
    r = rendered("trial", 'coordinator.image.digest="sha256:' + "a" * 64 + '"', 'image.tag="7"')
    same(
        (first(r, "coordinator")["image"], first(r, "worker")["image"]),
        ("localhost/trawl/coordinator@sha256:" + "a" * 64, "localhost/trawl/worker:7"),
        "digest and tag",
    )
    r = rendered(
        "trial",
        'worker.nodeSelector={"a":"b"}',
        'worker.tolerations=[{"key":"k","operator":"Exists"}]',
        'worker.affinity={"nodeAffinity":{}}',
        'worker.priorityClassName="p"',
    )
    same(
        (
            spec_of(r, "worker")["nodeSelector"],
            spec_of(r, "worker")["tolerations"][0]["key"],
            spec_of(r, "worker")["priorityClassName"],
        ),
        ({"a": "b"}, "k", "p"),
        "placement",
    )
    check("affinity" in spec_of(r, "worker"), "affinity")
    r = rendered(
        "trial",
        'worker.extraEnv=[{"name":"A","value":"b"}]',
        'worker.extraVolumes=[{"name":"x","emptyDir":{}}]',
        'worker.extraVolumeMounts=[{"name":"x","mountPath":"/x"}]',
        'worker.podLabels={"team":"t"}',
        'commonLabels={"cost":"c"}',
    )
    check(
        {"name": "A", "value": "b"} in first(r, "worker")["env"]
        and {"name": "x", "mountPath": "/x"} in first(r, "worker")["volumeMounts"],
        "further ones",
    )
    same(r.of("Deployment", "-worker")["spec"]["template"]["metadata"]["labels"]["team"], "t", "labels of pods")
    check(all(o["metadata"]["labels"]["cost"] == "c" for o in r.objects), "labels of all")
    r = rendered(
        "trial", "tests.enabled=false", 'coordinator.service={"type":"LoadBalancer","port":443,"annotations":{"a":"b"}}'
    )
    check(r.of("Pod") is None and r.of("NetworkPolicy", "-test") is None, "no test")
    service = r.of("Service", "-coordinator")
    same(
        (service["spec"]["type"], service["spec"]["ports"][0]["port"], service["metadata"]["annotations"]),
        ("LoadBalancer", 443, {"a": "b"}),
        "the service",
    )
    r = rendered("trial", 'coordinator.serviceAccount={"create":false,"name":"mine"}')
    same(spec_of(r, "coordinator")["serviceAccountName"], "mine", "an account that is there")
    check(r.of("ServiceAccount", "-coordinator") is None, "and is not made")
    r = rendered(
        "production",
        'results.bucket.existingSecret="s3"',
        'networkPolicy.objectStoreIdentity=""',
        'results.bucket.environment={"AWS_ENDPOINT_URL":"https://minio:9000"}',
    )
    check({"secretRef": {"name": "s3"}} in first(r, "coordinator")["envFrom"], "keys of S3 by a Secret")
    datasets_in_a_bucket(rendered, check, same)
    check("secretRef" not in json.dumps(first(r, "worker")["envFrom"]), "and not for workers")
    ports = [p["port"] for rule in r.of("NetworkPolicy", "-coordinator")["spec"]["egress"] for p in rule["ports"]]
    same(sorted(set(ports)), [53, 2379, 4317, 7400, 7500, 9000], "where a coordinator may connect")
    ports = [p["port"] for rule in r.of("NetworkPolicy", "-worker")["spec"]["egress"] for p in rule["ports"]]
    same(sorted(set(ports)), [53, 2379, 4317], "where a worker may connect")
    same(r.of("NetworkPolicy", "-default-deny")["spec"].get("ingress"), None, "the rest is denied")
    check("egress" not in r.of("NetworkPolicy", "-import")["spec"], "an import connects nowhere")
    r = rendered(
        "production",
        'networkPolicy.clients=[{"ipBlock":{"cidr":"10.0.0.0/8"}}]',
        'networkPolicy.etcd=[{"ipBlock":{"cidr":"10.1.0.0/16"}}]',
        'import.egress=[{"ports":[{"port":443}]}]',
    )
    text = json.dumps(r.of("NetworkPolicy", "-coordinator"))
    check("10.0.0.0/8" in text and "10.1.0.0/16" in text and '"podSelector": {}' not in text, "peers as given")
    check(r.of("NetworkPolicy", "-import")["spec"]["egress"], "an import that fetches")
    more = ('import.extraEnv=[{"name":"AWS_REGION","value":"us-east-1"}]', 'import.extraEnvFrom=[{"secretRef":{"name":"vendor"}}]')
    of_import = lambda r: r.of("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    container = of_import(rendered("production", *more))
    check({"name": "AWS_REGION", "value": "us-east-1"} in container["env"], "variables of an import")
    same(container["envFrom"], [{"secretRef": {"name": "vendor"}}], "Secrets of an import")
    bucket = 'import={"enabled":true,"dataset":"d","arguments":["s3://drop/bars"]}'
    same(
        of_import(rendered("bucket", bucket, more[1]))["envFrom"],
        [{"secretRef": {"name": "bucket-keys"}}, {"secretRef": {"name": "vendor"}}],
        "Secrets of an import beside those of the bucket of datasets",
    )
    r = rendered("production", 'import.initContainers=[{"name":"fetch","image":"registry.example.org/fetch:1"}]')
    fetch = r.of("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["initContainers"][0]
    same(fetch["securityContext"]["readOnlyRootFilesystem"], True, "who fetches is confined as well")
    r = rendered("trial", 'fullnameOverride="market"', 'clusterName="one"')
    same(
        (r.of("Deployment", "worker")["metadata"]["name"], r.config("worker")["TRAWL_CLUSTER_NAME"]),
        ("market-worker", "one"),
        "names",
    )
    r = rendered(
        "gpu-gh200",
        'worker.autoscaling={"kind":"keda","keda":{"scalerAddress":"prod-coordinator.ns.svc:7400","clientSecret":"k"}}',
    )
    same(
        r.of("ScaledObject")["spec"]["triggers"][0]["metadata"]["scalerAddress"],
        "prod-coordinator.ns.svc:7400",
        "another release's coordinators",
    )
    return f"{count} sets of values"
