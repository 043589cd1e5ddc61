"""Secrets and certificates of the chart: `review` looks at rendered objects, `on_etcd` is the part `etcd` of helm_chart.py.

The part issues the rendered Certificates with openssl, as cert-manager would, mounts them as the pods do, and starts a real etcd with
the arguments of the chart's trial, then Trawl's own processes with the chart's environment. It does not show cert-manager itself.
"""

import pathlib
import re
import subprocess
import tempfile
import time

import etcd_access
from etcd_access import Etcd, Identity, free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]


def secrets_of(volume):
    """Names of the Secrets of a volume."""
    sources = [s["secret"]["name"] for s in volume.get("projected", {}).get("sources", []) if "secret" in s]
    return sources + ([volume["secret"]["secretName"]] if "secret" in volume else [])


def words(value):
    """Every text among values."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return {w for v in value for w in words(v)}
    return {value} if isinstance(value, str) else set()


def review(check, case, rendered, values):
    """Every Secret and account is made by the release or named in its values; no CA signs certificates for etcd and of users."""
    certificates = [o for o in rendered.objects if o["kind"] == "Certificate"]
    made = {o["spec"]["secretName"] for o in certificates}
    accounts = {o["metadata"]["name"] for o in rendered.objects if o["kind"] == "ServiceAccount"}
    used = set()
    for owner, _, spec in rendered.pods():
        account = spec.get("serviceAccountName")
        check(account in accounts | words(values), f"{case}: {owner['metadata']['name']}: nobody makes account {account}")
        used |= {s for volume in spec.get("volumes", []) for s in secrets_of(volume)}
        for container in spec["containers"]:
            used |= {e["secretRef"]["name"] for e in container.get("envFrom", []) if "secretRef" in e}
    for o in rendered.objects:
        if o["kind"] == "TriggerAuthentication":
            used |= {t["name"] for t in o["spec"]["secretTargetRef"]}
    missing = used - made - words(values)
    check(not missing, f"{case}: Secrets that nobody makes: {sorted(missing)}")
    unused = {s for s in made - used if "client" not in s and not s.endswith("-ca")}
    check(not unused, f"{case}: certificates that nobody uses: {sorted(unused)}")

    issuers = {o["metadata"]["name"] for o in rendered.objects if o["kind"] == "Issuer"}
    for o in certificates:
        ref = o["spec"]["issuerRef"]
        there = ref["name"] in issuers or ref["name"] in words(values)
        check(there, f"{case}: {o['metadata']['name']}: no issuer {ref['name']}")
    of_secret = {o["spec"]["secretName"]: tuple(sorted(o["spec"]["issuerRef"].items())) for o in certificates}
    for_etcd, of_trawl = set(), {of_secret[o["spec"]["secretName"]] for o in certificates if o["spec"].get("uris")}
    for owner, metadata, spec in rendered.pods():
        volumes = {v["name"]: v for v in spec.get("volumes", [])}
        mounts = {m["mountPath"]: volumes.get(m["name"], {}) for m in spec["containers"][0].get("volumeMounts", [])}
        paths = ["/etc/trawl/etcd"]
        if metadata["labels"]["app.kubernetes.io/component"] == "etcd":
            paths = ["/etc/trawl/tls"]
        for_etcd |= {of_secret[s] for path in paths for s in secrets_of(mounts.get(path, {})) if s in of_secret}
    check(not for_etcd & of_trawl, f"{case}: {for_etcd & of_trawl} signs for etcd and for users")
    check(len(for_etcd) <= 1, f"{case}: etcd's certificates are of {for_etcd}")


class Issued:
    """The Secrets of a release's Certificates, as files."""

    def __init__(self, rendered, folder):
        self.folder = folder
        self.of = {o["metadata"]["name"]: o["spec"] for o in rendered.objects if o["kind"] == "Certificate"}
        self.issuers = {o["metadata"]["name"]: o["spec"] for o in rendered.objects if o["kind"] == "Issuer"}
        for name in sorted(self.of, key=lambda n: not self.of[n].get("isCA")):
            self.issue(self.of[name])

    def issue(self, spec):
        ca = self.issuers[spec["issuerRef"]["name"]].get("ca")
        names = [f"URI:{u}" for u in spec.get("uris", [])] + [f"DNS:{d}" for d in spec.get("dnsNames", [])]
        # There is no DNS here; etcd is at an address.
        names += ["IP:127.0.0.1"] if spec["secretName"].endswith("-etcd-tls") else []
        etcd_access.certificate(
            self.folder / spec["secretName"],
            spec["commonName"],
            issuer=self.folder / ca["secretName"] if ca else None,
            usages=spec.get("usages", []),
            names=names,
        )

    def identity(self, secret, ca):
        """A certificate of one Secret that trusts the CA of another."""
        return Identity(self.folder / ca / "ca.crt", self.folder / secret / "tls.crt", self.folder / secret / "tls.key")

    def mount(self, spec, root):
        """The Secrets of a pod, below `root`."""
        volumes = {v["name"]: v for v in spec.get("volumes", [])}
        for mount in spec["containers"][0]["volumeMounts"]:
            volume = volumes.get(mount["name"], {})
            target = root / mount["mountPath"].lstrip("/")
            for source in volume.get("projected", {}).get("sources", []):
                for item in source["secret"]["items"]:
                    copy(self.folder / source["secret"]["name"] / item["key"], target / item["path"])
            if "secret" in volume:
                for file in (self.folder / volume["secret"]["secretName"]).iterdir():
                    copy(file, target / file.name)


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())


def pod_of(rendered, component):
    return next(s for _, m, s in rendered.pods() if m["labels"]["app.kubernetes.io/component"] == component)


def on_etcd(helm, check, chart, trawl):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        rendered = helm.template("--values", chart / "ci/single-values.yaml", "--set", "fullnameOverride=trawl")
        issued = Issued(rendered, folder / "secrets")
        tried = trial(check, rendered, issued, folder, trawl)
        tried += documented_ca(check, folder / "documented")
        tried += roles(check, rendered, issued, folder, trawl)
    return f"{tried} accesses to etcd"


def trial(check, rendered, issued, folder, trawl):
    """The chart's etcd admits certificates of its CA and no other, and Trawl works with them."""
    spec = pod_of(rendered, "etcd")
    issued.mount(spec, folder / "etcd")
    arguments = [a.replace("/etc/trawl", str(folder / "etcd/etc/trawl")) for a in spec["containers"][0]["args"]]
    server = "trawl-etcd-tls"
    with Etcd(folder / "trial", arguments) as etcd:
        for secret in ("trawl-coordinator-etcd", "trawl-worker-etcd"):
            found = etcd.asks(issued.identity(secret, server))
            check(found.startswith("200"), f"etcd refuses {secret}: {found}")
            found = etcd.ctl(issued.identity(secret, server), "put", f"trawl/{secret}", "x")
            check(found == "OK", f"{secret} cannot write: {found}")
        # Those of Trawl's CA, of a user first of all, and none.
        for secret in ("trawl-client-tls", "trawl-coordinator-tls", "trawl-worker-tls"):
            found = etcd.refuses(issued.identity(secret, server))
            check("unknown authority" in found, f"etcd does not refuse {secret}: {found}")
            found = etcd.ctl(issued.identity(secret, server), "get", "--prefix", "trawl/")
            check("trawl/" not in found, f"{secret} reads keys: {found}")
        found = etcd.refuses(Identity(issued.folder / server / "ca.crt"))
        check("provide a certificate" in found, f"etcd does not ask for a certificate: {found}")
        tried = 10 + scan(check, rendered, issued, folder, trawl, etcd, "the trial")
    return tried


def documented(check, title):
    """The commands of docs/security.md under a title; empty, with a problem, if there are none."""
    found = re.search(rf"```sh\n(# {title}\n.*?)```", (ROOT / "docs/security.md").read_text(), re.S)
    check(found, f"docs/security.md has no commands '{title}'")
    return found[1] if found else ""


def documented_ca(check, folder):
    """docs/security.md, "A CA for etcd, and what it signs"."""
    folder.mkdir()
    script = documented(check, "A CA for etcd, and what it signs")
    ended = subprocess.run(["bash", "-e", "-c", script], capture_output=True, text=True, cwd=folder)
    check(ended.returncode == 0, f"the commands of docs/security.md fail:\n{ended.stderr}")
    ca = folder / "etcd-ca.pem"
    arguments = [f"--trusted-ca-file={ca}", f"--cert-file={folder}/etcd.pem", f"--key-file={folder}/etcd.key"]
    with Etcd(folder / "run", ["--client-cert-auth", "--enable-grpc-gateway=false", *arguments]) as etcd:
        for name in ("trawl-coordinator", "trawl-worker"):
            found = etcd.asks(Identity(ca, folder / f"{name}.pem", folder / f"{name}.key"))
            check(found.startswith("200"), f"etcd refuses the documented {name}: {found}")
        check("provide a certificate" in etcd.refuses(Identity(ca)), "the documented etcd asks for no certificate")
    return 3


def roles(check, rendered, issued, folder, trawl):
    """docs/security.md, "Roles of etcd": its commands, with Trawl's own CA, as `etcd.tls.trustsTrawlCa` has it."""
    script = documented(check, "Roles of etcd")
    ca = "trawl-ca"
    make = lambda name, **how: etcd_access.certificate(issued.folder / name, name, issuer=issued.folder / ca, **how)
    make("etcd", usages=["server auth"], names=["IP:127.0.0.1"])
    make("root", usages=["client auth"])
    make("bob", usages=["client auth"], names=["URI:trawl://client/bob"])
    tls = issued.folder / "etcd"
    arguments = [
        "--client-cert-auth",
        f"--trusted-ca-file={tls}/ca.crt",
        f"--cert-file={tls}/tls.crt",
        f"--key-file={tls}/tls.key",
    ]
    tried = 0
    with Etcd(folder / "roles", arguments) as etcd:
        root = issued.identity("root", ca)
        ended = etcd.shell(root, script)
        check(ended.returncode == 0, f"the commands of docs/security.md fail:\n{ended.stdout}{ended.stderr}")
        coordinator, worker, bob = (
            issued.identity(name, ca) for name in ("trawl-coordinator-tls", "trawl-worker-tls", "bob")
        )
        for who, name, allowed in (
            (coordinator, "a coordinator", {"leader": "rw", "scans/1": "rw", "ended/1": "rw", "requests/1": "rw"}),
            (coordinator, "a coordinator", {"coordinators/c": "rw", "workers/w": "r", "other": "", "": ""}),
            (worker, "a worker", {"workers/w": "rw", "workers": "", "leader": "", "scans/1": "", "": ""}),
            (worker, "a worker", {"coordinators/c": "", "ended/1": "", "requests/1": "", "workers0": ""}),
            (bob, "a user", {"workers/w": "", "leader": "", "scans/1": "", "ended/1": "", "": ""}),
        ):
            for key, may in allowed.items():
                for letter, command in (
                    ("r", ("get", f"trawl/{key}")),
                    ("w", ("put", f"trawl/{key}", "x")),
                    ("w", ("del", f"trawl/{key}")),
                ):
                    answer = etcd.ctl(who, *command)
                    denied = "permission denied" in answer or "user name not found" in answer
                    expected = letter not in may
                    check(denied == expected and "deadline" not in answer, f"{name}, {' '.join(command)}: {answer}")
                    tried += 1
        for who, name in ((worker, "a worker"), (bob, "a user")):
            for command in (("get", "--prefix", "trawl/"), ("user", "list"), ("role", "list"), ("auth", "disable")):
                answer = etcd.ctl(who, *command)
                check("permission denied" in answer or "not found" in answer, f"{name}, {command}: {answer}")
                tried += 1
        # A role by common name does not pass through JSON over HTTP: nobody has a name there.
        answer = etcd.json(bob, "/v3/kv/range", {"key": "dHJhd2wv", "range_end": "dHJhd2ww"})
        check("kvs" not in answer, f"a user, by JSON: {answer}")
        tried += 1 + scan(check, rendered, issued, folder, trawl, etcd, "roles", trusts_trawl_ca=True)
    return tried


def scan(check, rendered, issued, folder, trawl, etcd, what, trusts_trawl_ca=False):
    """A coordinator, a worker and the scan of `helm test`, with the environment and the Secrets of their pods."""
    root = folder / "processes" / what
    port = {"coordinator": free_port(), "worker": free_port()}
    running = []
    try:
        for component in ("coordinator", "worker"):
            spec = pod_of(rendered, component)
            issued.mount(spec, root / component)
            config = {k: v.replace("/etc/trawl", f"{root / component}/etc/trawl") for k, v in rendered.config(component).items()}
            if trusts_trawl_ca:
                config = {k: v for k, v in config.items() if not k.startswith("TRAWL_ETCD_C") and k != "TRAWL_ETCD_KEY"}
            address = f"127.0.0.1:{port[component]}"
            config |= {"TRAWL_ETCD_ENDPOINTS": etcd.address, "TRAWL_LISTEN": address, "TRAWL_ADVERTISE": address}
            (root / "data").mkdir(exist_ok=True)
            config |= {"TRAWL_ID": component, "TRAWL_DATA_ROOT": str(root / "data"), "TRAWL_HEALTH": "127.0.0.1:0"}
            config |= {"XDG_CACHE_HOME": str(root / "cache"), "TRAWL_DRAIN_TIMEOUT_S": "1"}
            config |= {"TRAWL_RESULTS": str(root / "results")} if component == "coordinator" else {}
            log = open(root / f"{component}.log", "w")
            running.append(subprocess.Popen([trawl, component], env=config, stdout=log, stderr=log))
        for component, process in zip(port, running):
            until = time.monotonic() + etcd_access.START_SECONDS_MAX
            started = lambda: f"ready {component}" in (root / f"{component}.log").read_text()
            while not started() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
        test = pod_of(rendered, "test")
        issued.mount(test, root / "test")
        container = test["containers"][0]
        environment = {v["name"]: v["value"].replace("/etc/trawl", f"{root}/test/etc/trawl") for v in container["env"]}
        environment["TRAWL_DATA_ROOT"] = str(root / "data")
        url = f"https://127.0.0.1:{port['coordinator']}"
        command = [trawl, *(re.sub("^--coordinator=.*", f"--coordinator={url}", a) for a in container["args"])]
        asked = lambda more: subprocess.run(command, env=environment | more, capture_output=True, text=True, timeout=120)
        ended = asked({})
        logs = "".join(f"{c}:\n{(root / f'{c}.log').read_text()[-3000:]}" for c in port)
        check(ended.returncode == 0 and ended.stdout, f"{what}: no scan with the chart's certificates:\n{ended.stderr}\n{logs}")
        check("permission denied" not in logs, f"{what}: etcd refuses a process something:\n{logs}")
        # A certificate for etcd is none for Trawl.
        own = issued.folder / "trawl-worker-etcd"
        ended = asked({"TRAWL_TLS_CERT": str(own / "tls.crt"), "TRAWL_TLS_KEY": str(own / "tls.key")})
        check(ended.returncode != 0, f"{what}: a certificate for etcd submits scans:\n{ended.stdout}")
    finally:
        for process in running:
            process.terminate()
        left = [process.wait() for process in running]
        logs = "".join((root / f"{c}.log").read_text()[-3000:] for c in port)
        check(left == [0, 0] and "could not be deleted" not in logs, f"{what}: the processes end with {left}:\n{logs}")
    return 3
