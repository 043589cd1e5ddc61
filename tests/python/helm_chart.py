#!/usr/bin/env python3
"""Checks the promises of the chart helm/trawl, with a real helm and the schemas of Kubernetes; needs no cluster.

    helm_chart.py --helm HELM --trawl TRAWL PART

PART is one of: objects (what every rendered object must be), branches (what each value changes), refusals (values that
are refused, and the messages), keys (options of the program, values, and the page that documents them), pages
(generated files are current), server (the program takes what the ConfigMaps set), etcd (whom a real etcd with the chart's
certificates lets in).
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import chart_docs  # noqa: E402  (it parses the program's options)
import helm_cases  # noqa: E402
import helm_observe  # noqa: E402
import helm_pods  # noqa: E402
import helm_refusals  # noqa: E402
import helm_trust  # noqa: E402

CHART = ROOT / "helm/trawl"
CASES = sorted((CHART / "ci").glob("*-values.yaml"))
# The oldest that Chart.yaml allows, and the newest whose schemas are available.
KUBERNETES = ("1.30", "1.37")
# Objects of other projects, whose schemas are not bundled; what they hold is checked in `branches`.
CUSTOM = {"Certificate", "Issuer", "PodMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication"}
# How long leaving takes besides draining (docs/cluster.md).
LEAVE_SECONDS = 15
# A pod of a Deployment is NAME-HASH-RANDOM; an id of Trawl has 64 characters at most.
POD_SUFFIX, ID_MAX = len("-1234567890-12345"), 64
SECRET_WORDS = re.compile(r"PASSWORD|SECRET|PRIVATE|TOKEN$|ACCESS_KEY|CREDENTIAL", re.I)

problems = []


def check(holds, what):
    if not holds:
        problems.append(what)


class Helm:
    """One helm, and what it rendered."""

    @staticmethod
    def reaches(*connection):
        return reaches(*connection)

    def __init__(self, helm):
        self.helm = helm

    def run(self, *arguments):
        command = [self.helm, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    def template(self, *arguments, release="rel", chart=CHART):
        ended = self.run("template", release, chart, "--namespace", "ns", *arguments)
        if ended.returncode != 0:
            raise SystemExit(f"helm template {' '.join(map(str, arguments))}:\n{ended.stderr}")
        return Rendered([o for o in yaml.safe_load_all(ended.stdout) if o])


class Rendered:
    def __init__(self, objects):
        self.objects = objects

    def of(self, kind, name=""):
        found = [o for o in self.objects if o["kind"] == kind and o["metadata"]["name"].endswith(name)]
        return found[0] if len(found) == 1 else None

    def kinds(self):
        return {o["kind"] for o in self.objects}

    def config(self, component):
        """The ConfigMap of a coordinator or worker, if there is one."""
        of_component = [
            o
            for o in self.objects
            if o["kind"] == "ConfigMap" and o["metadata"]["labels"]["app.kubernetes.io/component"] == component
        ]
        return of_component[0]["data"] if of_component else None

    def pods(self):
        """(object, metadata of the pod, spec of the pod)"""
        for o in self.objects:
            if o["kind"] == "Pod":
                yield o, o["metadata"], o["spec"]
            elif o["kind"] == "CronJob":
                template = o["spec"]["jobTemplate"]["spec"]["template"]
                yield o, template["metadata"], template["spec"]
            elif o["kind"] in ("Deployment", "StatefulSet"):
                yield o, o["spec"]["template"]["metadata"], o["spec"]["template"]["spec"]


def matches(selector, labels):
    by_label = all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items())
    operators = {"In": lambda e: labels.get(e["key"]) in e["values"]}
    return by_label and all(operators[e["operator"]](e) for e in selector.get("matchExpressions") or [])


def reaches(rendered, source, target, port):
    """Whether the network policies let the pods of one component connect to those of another, all in one namespace."""
    labels = {
        metadata["labels"]["app.kubernetes.io/component"]: metadata["labels"] for _, metadata, _ in rendered.pods()
    }

    def let_through(selected, other, direction, key):
        policies = [o for o in rendered.objects if o["kind"] == "NetworkPolicy"]
        applied = [p["spec"] for p in policies if matches(p["spec"]["podSelector"], selected)]
        rules = [rule for spec in applied for rule in spec.get(direction) or []]
        peers = lambda rule: rule.get(key) is None or any(
            "podSelector" in p and matches(p["podSelector"], other) for p in rule[key]
        )
        return not applied or any(port in [p["port"] for p in rule["ports"]] and peers(rule) for rule in rules)

    out = let_through(labels[source], labels[target], "egress", "to")
    return out and let_through(labels[target], labels[source], "ingress", "from")


# What every object must be


def check_pod(case, rendered, owner, metadata, spec):
    name = f"{case}: {owner['kind']}/{owner['metadata']['name']}"
    check(spec.get("automountServiceAccountToken") is False, f"{name}: mounts a token of the Kubernetes API")
    check(spec.get("enableServiceLinks") is False, f"{name}: takes the addresses of services into its environment")
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        check(not spec.get(key), f"{name}: {key}")
    security = spec.get("securityContext", {})
    check(security.get("runAsNonRoot") is True, f"{name}: may run as root")
    check(security.get("seccompProfile") == {"type": "RuntimeDefault"}, f"{name}: no seccomp profile")
    volumes = {v["name"]: v for v in spec.get("volumes", [])}
    volumes |= {t["metadata"]["name"]: t for t in owner["spec"].get("volumeClaimTemplates", [])}
    mounted = set()
    for container in spec.get("initContainers", []) + spec["containers"]:
        what = f"{name}/{container['name']}"
        own = container.get("securityContext", {})
        check(own.get("allowPrivilegeEscalation") is False and own.get("privileged") is False, f"{what}: privileges")
        check(own.get("readOnlyRootFilesystem") is True, f"{what}: its root can be written")
        check(own.get("capabilities") == {"drop": ["ALL"]}, f"{what}: capabilities {own.get('capabilities')}")
        image = container.get("image", "")
        check(re.search(r":(?!latest$)[\w.-]+$|@sha256:[0-9a-f]{64}$", image), f"{what}: image '{image}' is not pinned")
        if container in spec["containers"]:
            resources = container.get("resources", {})
            check({"cpu", "memory"} <= set(resources.get("requests", {})), f"{what}: asks for no cpu or memory")
            check("memory" in resources.get("limits", {}), f"{what}: memory without a limit")
        for variable in container.get("env", []):
            secret = SECRET_WORDS.search(variable["name"]) and "value" in variable
            check(
                not secret or variable["value"].startswith("/"), f"{what}: {variable['name']} is a secret in the open"
            )
        for source in container.get("envFrom", []):
            if reference := source.get("configMapRef"):
                there = any(
                    o["kind"] == "ConfigMap" and o["metadata"]["name"] == reference["name"] for o in rendered.objects
                )
                check(there, f"{what}: no ConfigMap {reference['name']}")
        for port in container.get("ports", []):
            check("hostPort" not in port, f"{what}: a port of the node")
        paths = [m["mountPath"] for m in container.get("volumeMounts", [])]
        check(len(paths) == len(set(paths)), f"{what}: two volumes at one path")
        for mount in container.get("volumeMounts", []):
            check(mount["name"] in volumes, f"{what}: mounts '{mount['name']}', which is not a volume")
            mounted.add(mount["name"])
            if helm_trust.secrets_of(volumes.get(mount["name"], {})):
                check(mount.get("readOnly") is True, f"{what}: a secret that can be written")
                # Only then does a kubelet update a certificate or token.
                check("subPath" not in mount, f"{what}: a secret by subPath is never renewed")
    check(set(volumes) == mounted, f"{name}: unmounted volumes: {set(volumes) - mounted}")
    for volume in volumes.values():
        check("hostPath" not in volume, f"{name}: a path of the node")
        if "emptyDir" in volume:
            check("sizeLimit" in (volume["emptyDir"] or {}), f"{name}: emptyDir '{volume['name']}' without a limit")
        if helm_trust.secrets_of(volume):
            mode = (volume.get("secret") or volume["projected"]).get("defaultMode")
            check(mode == 0o440, f"{name}: secret '{volume['name']}' is open to others")
    selector = owner["spec"].get("selector", {})
    if selector:
        check(matches(selector, metadata["labels"]), f"{name}: selects other pods than its own")
        moving = [k for k in selector["matchLabels"] if "version" in k or "chart" in k]
        check(not moving, f"{name}: {moving} in a selector, which can never change")


def check_server(case, rendered, deployment):
    """A coordinator or worker: probes and periods follow from the program's configuration."""
    component = deployment["metadata"]["labels"]["app.kubernetes.io/component"]
    name = f"{case}: {component}"
    spec = deployment["spec"]["template"]["spec"]
    container, config = spec["containers"][0], rendered.config(component)
    drain = int(config["TRAWL_DRAIN_TIMEOUT_S"])
    pre_stop = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    grace = spec["terminationGracePeriodSeconds"]
    check(
        grace >= pre_stop + drain + LEAVE_SECONDS,
        f"{name}: {grace} s of grace, and leaving takes up to {pre_stop} + {drain} + {LEAVE_SECONDS}",
    )
    port = int(config["TRAWL_HEALTH"].rsplit(":", 1)[1])
    asks = {probe: container[probe].get("grpc") for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    # Liveness depends on nothing else: a restart would not help while etcd is away.
    services = {"startupProbe": "ready", "livenessProbe": "live", "readinessProbe": "ready"}
    for probe, service in services.items():
        check(asks[probe] == {"port": port, "service": service}, f"{name}: {probe} asks {asks[probe]}")
    startup = container["startupProbe"]
    allowed = startup["periodSeconds"] * startup["failureThreshold"]
    waits = int(config.get("TRAWL_ETCD_TIMEOUT_S", 10))
    check(allowed >= waits + 30, f"{name}: {allowed} s to start, and the program waits {waits} s for etcd")
    environment = {v["name"]: v for v in container["env"]}
    check(environment["TRAWL_ID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name", f"{name}: its id")
    listen = config["TRAWL_LISTEN"].rsplit(":", 1)[1]
    check(environment["TRAWL_ADVERTISE"]["value"] == f"$(POD_IP):{listen}", f"{name}: {environment['TRAWL_ADVERTISE']}")
    check(
        list(environment).index("POD_IP") < list(environment).index("TRAWL_ADVERTISE"), f"{name}: POD_IP comes too late"
    )
    check(container["args"] == [component] and "command" not in container, f"{name}: runs {container['args']}")
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    check(ports["grpc"] == int(listen) and ports["health"] == port, f"{name}: ports {ports}")
    check(
        ports.get("metrics") == (int(config["TRAWL_METRICS"].rsplit(":", 1)[1]) if "TRAWL_METRICS" in config else None),
        f"{name}: {ports}",
    )
    check(
        "checksum/config" in deployment["spec"]["template"]["metadata"]["annotations"],
        f"{name}: a new ConfigMap does not restart pods",
    )
    check(len(deployment["metadata"]["name"]) + POD_SUFFIX <= ID_MAX, f"{name}: pods' names are too long for ids")
    keys = [c["topologyKey"] for c in spec["topologySpreadConstraints"]]
    check(keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"], f"{name}: spread over {keys}")
    plain = config.get("TRAWL_INSECURE") == "true"
    check(plain != ("TRAWL_TLS_CERT" in config), f"{name}: neither certificates nor plain text, or both")
    mounts = {m["mountPath"]: m for m in container["volumeMounts"]}
    for key, value in config.items():
        if value.startswith("/etc/trawl"):
            check(any(value.startswith(path) for path in mounts), f"{name}: {key}={value} is not mounted")
    # Where datasets are, or where copies of a bucket's are kept.
    folder = config["TRAWL_DATA_CACHE" if config["TRAWL_DATA_ROOT"].startswith("s3://") else "TRAWL_DATA_ROOT"]
    check("/var/lib/trawl/data" in mounts and folder == "/var/lib/trawl/data", f"{name}: no data")
    if component == "worker":
        data = next(v for v in spec["volumes"] if v["name"] == "data")
        check(
            "emptyDir" in data or mounts["/var/lib/trawl/data"].get("readOnly") is True,
            f"{name}: a worker may write bars",
        )


def objects(helm):
    checked = 0
    for path in CASES:
        case = path.name.removesuffix("-values.yaml")
        lint = helm.run("lint", "--strict", CHART, "--values", path)
        check(lint.returncode == 0, f"{case}: helm lint:\n{lint.stdout}{lint.stderr}")
        # A long name is truncated, so that all names remain valid.
        for release in ("rel", "a-release-with-a-name-of-fifty-characters-and-more"):
            rendered = helm.template("--values", path, release=release)
            check_rendered(case, rendered)
            helm_trust.review(check, case, rendered, yaml.safe_load(path.read_text()))
            checked += len(rendered.objects)
    return f"{checked} objects of {len(CASES)} sets of values, against Kubernetes {' and '.join(KUBERNETES)}"


def check_test(case, pod):
    """The pod of `helm test`: a client reads no TRAWL_INSECURE, and `--logs` reads the log of a pod that has succeeded."""
    container = pod["spec"]["containers"][0]
    plain = any(a.startswith("--coordinator=http://") for a in container["args"])
    check(plain == ("--insecure" in container["args"]), f"{case}: the test's arguments {container['args']}")
    names = {variable["name"] for variable in container["env"]}
    check("TRAWL_INSECURE" not in names and plain != ("TRAWL_TLS_CA" in names), f"{case}: the test's environment {names}")
    policy = pod["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    check("hook-succeeded" not in policy, f"{case}: 'helm test --logs' finds no pod")


def check_rendered(case, rendered):
    for pod in rendered.objects:
        if pod["kind"] == "Pod":
            check_test(case, pod)
    seen = set()
    policies = [o for o in rendered.objects if o["kind"] == "NetworkPolicy"]
    pods = list(rendered.pods())
    for o in rendered.objects:
        name = f"{case}: {o['kind']}/{o['metadata']['name']}"
        check((o["kind"], o["metadata"]["name"]) not in seen, f"{name} twice")
        seen.add((o["kind"], o["metadata"]["name"]))
        check(len(o["metadata"]["name"]) <= 63, f"{name}: too long a name")
        for version in KUBERNETES:
            try:
                kubernetes_validate.validate(o, version, strict=True)
            except kubernetes_validate.SchemaNotFoundError:
                check(o["kind"] in CUSTOM, f"{name}: Kubernetes {version} has no such kind")
            except kubernetes_validate.ValidationError as error:
                check(False, f"{name}: Kubernetes {version}: {'.'.join(map(str, error.path))}: {error.message}")
        check(
            o["kind"] not in ("Secret", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"),
            f"{name}: not wanted",
        )
        check(
            {"app.kubernetes.io/name", "app.kubernetes.io/instance", "helm.sh/chart"} <= set(o["metadata"]["labels"]),
            f"{name}: labels",
        )
        check(o["kind"] == "PriorityClass" or o["metadata"].get("namespace") == "ns", f"{name}: no namespace")
        if o["kind"] == "ConfigMap":
            for key, value in o["data"].items():
                check(not SECRET_WORDS.search(key), f"{name}: {key} in a ConfigMap")
                check("BEGIN" not in value and "PRIVATE KEY" not in value, f"{name}: {key} holds a key")
                check(
                    not re.search(r"e\+\d\d", value) or key.endswith(".json"), f"{name}: {key}={value} lost its digits"
                )
        if o["kind"] == "Service":
            behind = [s for _, m, s in pods if matches({"matchLabels": o["spec"]["selector"]}, m["labels"])]
            check(len(behind) == 1, f"{name}: {len(behind)} kinds of pods behind it")
            named = {p["name"] for s in behind for c in s["containers"] for p in c["ports"]}
            check(all(p["targetPort"] in named for p in o["spec"]["ports"]), f"{name}: its ports are none of the pods'")
        if o["kind"] in ("PodDisruptionBudget", "PodMonitor"):
            check(any(matches(o["spec"]["selector"], m["labels"]) for _, m, _ in pods), f"{name}: selects no pod")
        if o["kind"] == "ServiceAccount":
            check(o.get("automountServiceAccountToken") is False, f"{name}: mounts its token")
    for owner, metadata, spec in pods:
        check_pod(case, rendered, owner, metadata, spec)
        if policies:
            applied = [p for p in policies if matches(p["spec"]["podSelector"], metadata["labels"])]
            both = all(p["spec"]["policyTypes"] == ["Ingress", "Egress"] for p in applied)
            check(len(applied) == 2 and both, f"{case}: {owner['metadata']['name']}: {len(applied)} network policies")
    for policy in policies:
        check(
            any(matches(policy["spec"]["podSelector"], m["labels"]) for _, m, _ in pods),
            f"{case}: {policy['metadata']['name']} selects no pod",
        )
        for rule in (policy["spec"].get("ingress") or []) + (policy["spec"].get("egress") or []):
            check(rule.get("ports"), f"{case}: {policy['metadata']['name']}: a rule for every port")
    for o in rendered.objects:
        if o["kind"] == "Deployment":
            check_server(case, rendered, o)


# Options of the program, and pages


def keys(helm, trawl):
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    rendered = [helm.template("--values", path) for path in CASES]
    count = 0
    # Of every process, beside the options.
    documented = ["TRAWL_LOG", "TRAWL_LOG_FORMAT", "TRAWL_NODE"]
    page = (ROOT / "docs/telemetry.md").read_text()
    check(all(f"`{v}" in page for v in documented), "docs/telemetry.md does not tell what the chart sets")
    for command in ("coordinator", "worker"):
        known = chart_docs.options(trawl, command)
        check(len(known) > 15, f"trawl {command} --help is not understood: {sorted(known)}")
        # The chart has values in place of a file of options.
        wired = {o for o in known if o in chart_docs.WIRED and o != "config"}
        configured = {chart_docs.camel(o) for o in known if o not in chart_docs.WIRED}
        allowed = set(schema["properties"][command]["properties"]["config"]["properties"])
        check(
            allowed == configured,
            f"{command}.config: the schema knows {sorted(allowed - configured)} and lacks {sorted(configured - allowed)}",
        )
        check(
            set(values[command]["config"]) <= configured,
            f"{command}.config in values.yaml: {set(values[command]['config']) - configured}",
        )
        # A variable that no option reads would be ignored silently.
        variables = {chart_docs.variable(o) for o in known} | set(documented) | {"MIMALLOC_ALLOW_THP"}
        used = set()
        for case in rendered:
            for o in case.objects:
                if o["kind"] == "Deployment" and o["metadata"]["name"].endswith(command):
                    container = o["spec"]["template"]["spec"]["containers"][0]
                    used |= {v["name"] for v in container["env"]} | set(case.config(command))
        unknown = {v for v in used if v.startswith("TRAWL_")} - variables
        check(not unknown, f"{command}: the chart sets {sorted(unknown)}, which no option reads")
        missing = {chart_docs.variable(o) for o in wired} - used
        check(not missing, f"{command}: the chart never sets {sorted(missing)}")
        count += len(known)
    page = (ROOT / "docs/kubernetes/configuration.md").read_text()
    check(page == chart_docs.key_page(trawl), "docs/kubernetes/configuration.md is not current: run `just chart-docs`")

    # What KEDA passes on to the coordinator is what that reads.
    asked = rendered[[p.name for p in CASES].index("production-values.yaml")].of("ScaledObject")
    passed_on = set(asked["spec"]["triggers"][0]["metadata"]) - {"scalerAddress", "enableTLS"}
    read = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/scaling.md").read_text(), re.M)) - {
        "GetMetrics",
        "GetMetricSpec",
    }
    check(passed_on == read, f"KEDA passes on {sorted(passed_on)}, the coordinator reads {sorted(read)}")

    # Every key of values.yaml is known to the schema and the other way round, and has a description.
    def walk(schema_part, value, path):
        while "$ref" in schema_part:
            schema_part = schema["definitions"][schema_part["$ref"].rsplit("/", 1)[1]]
        if "properties" not in schema_part:
            return
        check(schema_part.get("additionalProperties") is False, f"schema: {path or 'the top'} takes unknown keys")
        declared = set(schema_part["properties"]) - {"global"}
        optional = path.endswith((".config", "resources")) or ".probes." in path
        check(
            set(value) == declared or (optional and set(value) <= declared),
            f"{path or 'the top'}: values.yaml and the schema differ in {set(value) ^ declared}",
        )
        for key in set(value) & declared:
            if isinstance(value[key], dict):
                walk(schema_part["properties"][key], value[key], f"{path}.{key}".lstrip("."))

    walk(schema, values, "")
    return f"{count} options of the program, and every key of the values"


def pages(helm, trawl):
    for path, text in chart_docs.written(trawl).items():
        check((ROOT / path).read_text() == text, f"{path} is not current: run `just chart-docs`")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^\[workspace\.package\]\nversion = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    check(chart["appVersion"] == version, f"Chart.yaml: appVersion {chart['appVersion']}, Cargo.toml: {version}")
    for source, target, ending in (
        ("deploy/prometheus", "files/rules", ".yaml"),
        ("deploy/grafana", "files/dashboards", ".json"),
    ):
        wanted = {p.name: p.read_text() for p in sorted((ROOT / source).glob(f"*{ending}"))}
        found = {p.name: p.read_text() for p in sorted((CHART / target).glob(f"*{ending}"))}
        check(wanted == found, f"helm/trawl/{target} is not {source}: run `just chart-files`")
    return "README.md, configuration.md, rules and dashboards"


def server(helm, trawl):
    """The program itself takes what the ConfigMaps set: no unknown word, nothing out of range."""
    count = 0
    for path in CASES:
        rendered = helm.template("--values", path)
        for command in ("coordinator", "worker"):
            if not (config := rendered.config(command)):
                continue
            config = dict(config)
            # Ports that are free, an etcd that is not waited for, and certificates that are certainly not there.
            config |= {
                k: re.sub(r":\d+$", ":0", config[k])
                for k in ("TRAWL_LISTEN", "TRAWL_HEALTH", "TRAWL_METRICS")
                if k in config
            }
            config |= {
                "TRAWL_ETCD_TIMEOUT_S": "0",
                "TRAWL_ADVERTISE": "fd00::7:7500" if ":" in config["TRAWL_LISTEN"][:-2] else "10.0.0.7:7500",
            }
            config |= {"TRAWL_ID": "p" * ID_MAX, "PATH": os.environ.get("PATH", "")}
            # Checked at start; the volume, or the bucket, is not here.
            config["TRAWL_DATA_ROOT"] = str(CHART)
            config["TRAWL_LISTEN"] = config["TRAWL_LISTEN"].replace("[::]", "0.0.0.0")
            config["TRAWL_HEALTH"] = config["TRAWL_HEALTH"].replace("[::]", "127.0.0.1").replace("0.0.0.0", "127.0.0.1")
            if "TRAWL_METRICS" in config:
                config["TRAWL_METRICS"] = "127.0.0.1:0"
            config = {k: v for k, v in config.items() if k != "OTEL_EXPORTER_OTLP_ENDPOINT"}
            config["TRAWL_ETCD_ENDPOINTS"] = re.sub(
                r"//[^,]*", "//127.0.0.1:1", config["TRAWL_ETCD_ENDPOINTS"].split(",")[0]
            )
            ended = subprocess.run([trawl, command], capture_output=True, text=True, env=config, timeout=60)
            name = f"{path.name}: trawl {command}"
            check("Usage" not in ended.stderr and "invalid value" not in ended.stderr, f"{name}:\n{ended.stderr}")
            if "TRAWL_TLS_CERT" in config:
                check(
                    ended.returncode == 2 and "/etc/trawl/tls" in ended.stderr,
                    f"{name}: exit code {ended.returncode}:\n{ended.stderr}",
                )
            else:
                check(
                    ended.returncode == 1 and "etcd" in ended.stderr,
                    f"{name}: exit code {ended.returncode}:\n{ended.stderr}",
                )
            count += 1
    return f"{count} servers started with a ConfigMap as their environment"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--helm", required=True)
    parser.add_argument("--trawl", required=True)
    parser.add_argument("part")
    given = parser.parse_args()
    helm = Helm(given.helm)
    parts = {
        "objects": lambda: objects(helm),
        "branches": lambda: (
            f"{helm_cases.branches(helm, check, CHART)}, {helm_pods.branches(helm, check, CHART)}; "
            f"{helm_observe.observe(helm, check, CHART)} rules of Prometheus"
        ),
        "refusals": lambda: helm_refusals.refusals(helm, check, CHART),
        "keys": lambda: keys(helm, given.trawl),
        "pages": lambda: pages(helm, given.trawl),
        "server": lambda: server(helm, given.trawl),
        "etcd": lambda: helm_trust.on_etcd(helm, check, CHART, given.trawl),
    }
    summary = parts[given.part]()
    for problem in problems:
        print(f"- {problem}", file=sys.stderr)
    print(f"{given.part}: {summary}; {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
