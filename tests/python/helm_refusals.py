"""Values of the chart that are refused, with the messages; the cases of `helm_chart.py refusals`."""

import re


def arguments(chart, base, sets):
    return ["--values", chart / f"ci/{base}-values.yaml", *(w for s in sets for w in ("--set-json", s))]


def plain(message):
    """The schema's refusals in the words of helm 3; helm 4 words them differently."""
    message = re.sub(r"at '/([^']*)'", lambda at: at[1].replace("/", "."), message)
    message = re.sub(
        r"additional properties? (.*) not allowed",
        lambda at: at[1].replace("'", "") + " is not allowed",
        message,
        flags=re.I,
    )
    message = re.sub(r"missing property '(\w+)'", r"\1 is required", message)
    message = message.replace("minLength", "length").replace("'", '"')
    return message


def refusals(helm, check, chart):
    """(base, values, words that the refusal holds)"""
    secrets = '"existingSecrets":{"coordinator":"c","worker":"w","client":"u"}'
    cases = [
        # By the schema: a wrong word, a wrong type, an unknown key, out of range.
        ("trial", ['tls.mode="plain"'], ["tls.mode", '"certManager"', '"disabled"']),
        ("trial", ['worker.autoscaling.kind="both"'], ["worker.autoscaling.kind", '"keda"', '"hpa"']),
        (
            "trial",
            ["worker.autoscaling.keda.enabled=true", "worker.autoscaling.hpa.enabled=true"],
            ["keda", "hpa", "enabled is not allowed"],
        ),
        ("trial", ["coordinator.config.scanRunningMax=4"], ["coordinator.config", "scanRunningMax is not allowed"]),
        ("trial", ["coordinater.replicas=2"], ["coordinater is not allowed"]),
        ("trial", ["coordinator.replicas=0"], ["coordinator.replicas", "1"]),
        ("trial", ['coordinator.replicas="2"'], ["coordinator.replicas", "integer"]),
        ("trial", ["worker.leaveMarginSeconds=5"], ["worker.leaveMarginSeconds", "15"]),
        ("trial", ["worker.config.drainTimeoutS=null"], ["worker.config", "drainTimeoutS is required"]),
        ("trial", ["worker.config.drainTimeoutS=0"], ["worker.config.drainTimeoutS", "1"]),
        ("trial", ['worker.resources.limits.memory="4GB"'], ["worker.resources.limits.memory", "pattern"]),
        ("trial", ['worker.image.digest="sha256:abc"'], ["worker.image.digest", "pattern"]),
        ("trial", ['clusterName="a/b"'], ["clusterName", "pattern"]),
        ("trial", ['log=""'], ["log", "length"]),
        ("trial", ["securityContext.runAsUser=0"], ["securityContext.runAsUser", "1"]),
        ("production", ['results.bucket.url="https://bucket"'], ["results.bucket.url", "pattern"]),
        ("production", ['results.bucket.environment.PATH="/x"'], ["results.bucket.environment", "PATH is not allowed"]),
        ("production", ['data.kind="bucket"', 'data.bucket.url="abfs://bucket"'], ["data.bucket.url", "pattern"]),
        ("production", ['data.kind="bucket"'], ["data.bucket.url is empty", "s3://BUCKET/PREFIX"]),
        (
            "production",
            ['data.kind="bucket"', 'data.bucket.url="s3://b/d"', 'data.bucket.environment.AWS_SECRET_ACCESS_KEY="x"'],
            ["is a secret", "data.bucket.existingSecret"],
        ),
        (
            "production",
            ['data.kind="bucket"', 'data.bucket.url="az://b/d"', 'data.bucket.environment.AZURE_STORAGE_ACCOUNT_KEY="x"'],
            ["AZURE_STORAGE_ACCOUNT_KEY is a secret", "data.bucket.existingSecret"],
        ),
        (
            "production",
            ['data.kind="bucket"', 'data.bucket.url="gs://b/d"', 'data.bucket.environment.GOOGLE_SERVICE_ACCOUNT_KEY="{}"'],
            ["GOOGLE_SERVICE_ACCOUNT_KEY is a secret", "data.bucket.existingSecret"],
        ),
        (
            "production",
            ['data.kind="bucket"', 'data.bucket.url="s3://b/d"', 'data.bucket.environment.AWS_REGION="us-east-1"'],
            ["data.bucket.environment.AWS_REGION and results.bucket.environment.AWS_REGION differ"],
        ),
        (
            "production",
            ['data.kind="bucket"', 'data.bucket.url="s3://b/d"', 'data.bucket.existingSecret="a"', 'results.bucket.existingSecret="b"'],
            ["data.bucket.existingSecret and results.bucket.existingSecret differ"],
        ),
        ("production", ['etcd.endpoints=["etcd:2379"]'], ["etcd.endpoints.0", "pattern"]),
        ("production", ['data.accessModes=["ReadOnlyMany"]'], ["data.accessModes.0", '"ReadWriteMany"']),
        ("gpu-mig", ['worker.gpu.resourceName="gpu"'], ["worker.gpu.resourceName", "pattern"]),
        # By templates/validate.yaml: values that contradict each other, with advice.
        ("trial", ["etcd.trial.enabled=false"], ["etcd.endpoints is empty", "etcd.trial.enabled=true"]),
        ("trial", ['etcd.endpoints=["http://e:2379"]'], ["exclude each other"]),
        ("production", ['etcd.endpoints=["http://e:2379"]'], ["http://e:2379 is plain text", "https://"]),
        # etcd's CA, and who may have a certificate of it.
        (
            "production",
            ['tls.mode="disabled"', 'etcd.tls.coordinatorSecret=""', 'etcd.tls.workerSecret=""'],
            ["etcd.tls.coordinatorSecret is empty", "etcd.tls.workerSecret is empty", "etcd.tls.issuerRef"],
        ),
        ("production", ['etcd.existingSecret="c"'], ["etcd", "existingSecret is not allowed"]),
        ("gpu-gh200", ["etcd.tls.workerSecret=null"], ["etcd.tls.workerSecret is empty"]),
        ("gpu-gh200", ['etcd.tls.workerSecret="trawl-worker-tls"'], ["own certificates: a CA that signs", "trustsTrawlCa"]),
        ("production", ['etcd.tls.coordinatorSecret="rel-trawl-client-tls"'], ["own certificates: a CA that signs"]),
        (
            "production",
            ['etcd.tls={"issuerRef":{"name":"internal-ca","kind":"ClusterIssuer"}}'],
            ["etcd.tls.issuerRef is also the issuer"],
        ),
        (
            "production",
            ['etcd.tls={"issuerRef":{"name":"rel-trawl-ca"}}', 'tls.certManager.issuerRef.name=""'],
            ["etcd.tls.issuerRef is also the issuer"],
        ),
        ("gpu-mig", ['etcd.tls={"issuerRef":{"name":"etcd-ca"}}'], ["etcd.tls.issuerRef needs tls.mode=certManager"]),
        ("single", ['etcd.tls.workerSecret="w"'], ["etcd.tls is for your own etcd"]),
        ("single", ["etcd.tls.trustsTrawlCa=true"], ["etcd.tls.trustsTrawlCa is for your own etcd"]),
        ("production", ["etcd.tls.trustsTrawlCa=true"], ["etcd.tls.trustsTrawlCa excludes the other values"]),
        # Images of a namespace that nobody here owns.
        ("trial", ['image.registry=""'], ["image.registry is empty", "trawl/coordinator", "trawl/worker", "trawl/cli"]),
        ("gpu-gh200", ['image.registry=""'], ["trawl/worker-cuda"]),
        # A release that joins another one's cluster.
        ("gpu-gh200", ['clusterName=""'], ["clusterName is empty", "joins the cluster of another release"]),
        # Fields that the chart sets itself, and rules for pods that there are none of.
        ("trial", ["worker.extraPodSpec.volumes=[]"], ["worker.extraPodSpec.volumes: the chart sets"]),
        ("trial", ["coordinator.probes.startup.grpc={}"], ["coordinator.probes.startup", "grpc is not allowed"]),
        ("trial", ["networkPolicy.extraEgress.workers=[]"], ["networkPolicy.extraEgress", "workers is not allowed"]),
        ("production", ['networkPolicy.objectStoreIdentity="irsa"'], ["objectStoreIdentity", '"podIdentity"']),
        ("trial", ['coordinator.service.loadBalancerSourceRanges=["10.0.0.1"]'], ["loadBalancerSourceRanges", "pattern"]),
        ("production", ['tls.mode="disabled"'], ["tokens.existingSecret needs certificates"]),
        ("production", ['tests.tokenSecret=""'], ["tests.tokenSecret is empty", "helm test"]),
        (
            "production",
            ['tls.mode="existingSecrets"'],
            ["tls.existingSecrets.coordinator", "tls.existingSecrets.worker", "tls.existingSecrets.client"],
        ),
        ("single", ['tls={"mode":"existingSecrets",%s}' % secrets], ["tls.existingSecrets.etcd is empty"]),
        (
            "production",
            ["coordinator.enabled=false", 'tls.certManager.issuerRef.name=""'],
            ["tls.certManager.issuerRef.name is empty"],
        ),
        ("production", ["coordinator.enabled=false"], ["worker.autoscaling.keda.scalerAddress is empty"]),
        ("production", ["coordinator.enabled=false", "worker.enabled=false"], ["enable at least one"]),
        ("production", ['data.existingClaim=""'], ["data.existingClaim is empty"]),
        ("production", ['data.accessModes=["ReadWriteOnce"]'], ["44 pods share the datasets", "ReadWriteMany"]),
        ("production", ['data.kind="none"'], ["import.enabled needs a data volume"]),
        ("production", ['import.dataset=""'], ["import.dataset is empty"]),
        ("production", ['results.bucket.url=""'], ["results.bucket.url is empty", "s3://BUCKET/PREFIX"]),
        (
            "production",
            ['results.bucket.environment.AWS_SECRET_ACCESS_KEY="x"'],
            ["is a secret", "results.bucket.existingSecret"],
        ),
        ("production", ['results.kind="existingClaim"'], ["results.existingClaim is empty"]),
        (
            "gpu-mig",
            ['results.accessModes=["ReadWriteOnce"]'],
            ["results.accessModes is ReadWriteOnce", "coordinator.replicas is 2", "use a bucket"],
        ),
        ("trial", ["coordinator.replicas=2"], ["results.kind=emptyDir", "coordinator.replicas is 2"]),
        ("production", ["worker.autoscaling.minReplicas=41"], ["minReplicas is 41, above maxReplicas, 40"]),
        ("production", ['worker.autoscaling.kind="hpa"'], ["minReplicas=0 needs kind=keda"]),
        (
            "trial",
            ["worker.config.cacheBytes=4000000000"],
            ["worker.config.cacheBytes is 4000000000", "memory limit 4Gi"],
        ),
        (
            "trial",
            ["etcd.trial.enabled=false", "coordinator.replicas=2"],
            ["etcd.endpoints is empty", "results.kind=emptyDir"],
        ),
    ]
    for base, sets, words in cases:
        ended = helm.run("template", "rel", chart, "--namespace", "ns", *arguments(chart, base, sets))
        name = f"{base} with {', '.join(sets)}"
        check(ended.returncode != 0, f"{name}: not refused")
        for word in words:
            check(word in plain(ended.stderr), f"{name}: the refusal does not say '{word}':\n{ended.stderr}")
    # Without any values, one message lists everything that is missing.
    ended = helm.run("template", "rel", chart)
    check(ended.returncode != 0 and "etcd.endpoints" in ended.stderr and "results.bucket.url" in ended.stderr, ended.stderr)
    return f"{len(cases) + 1} sets of values refused"
