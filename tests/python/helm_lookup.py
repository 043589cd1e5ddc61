"""`checksum/environment` of the chart, which helm computes from what the Kubernetes cluster holds: a helm upgrade against a stand-in
for the API server, which answers the few requests that a `lookup` takes and refuses all others.
"""

import http.server
import json
import threading

import yaml

NAMESPACE = "ns"


def plural(kind):
    return f"{kind.lower()}s"


class ApiServer(http.server.ThreadingHTTPServer):
    """Secrets and ConfigMaps of one namespace, {(kind, name): resourceVersion}, and the kinds of the given objects."""

    def __init__(self, held, objects):
        super().__init__(("127.0.0.1", 0), Handler)
        self.held = held
        self.asked = []
        self.kinds = {(o["apiVersion"], o["kind"]) for o in objects} | {("v1", kind) for kind, _ in held}

    def answer(self, path):
        if path == "/version":
            return {"major": "1", "minor": "31", "gitVersion": "v1.31.0"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            versions = sorted({v for v, _ in self.kinds if "/" in v})
            entry = lambda v: {"groupVersion": v, "version": v.split("/")[1]}
            groups = [{"name": v.split("/")[0], "versions": [entry(v)], "preferredVersion": entry(v)} for v in versions]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if listed := [kind for of, kind in sorted(self.kinds) if of == version]:
            resources = [
                {"name": plural(kind), "singularName": "", "namespaced": kind != "PriorityClass", "kind": kind, "verbs": ["get"]}
                for kind in listed
            ]
            return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
        for (kind, name), version in self.held.items():
            if path == f"/api/v1/namespaces/{NAMESPACE}/{plural(kind)}/{name}":
                metadata = {"name": name, "namespace": NAMESPACE, "resourceVersion": version}
                return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": {}}
        return None


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.split("?")[0]
        self.server.asked.append(path)
        found = self.server.answer(path)
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        body = json.dumps(found or status).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def checksums(helm, check, chart, folder):
    """(annotation of the coordinators, of the workers) for what the cluster holds."""
    held = {("Secret", "s3"): "1", ("Secret", "vendor"): "1", ("ConfigMap", "settings"): "1", ("Secret", "other"): "1"}
    api = ApiServer(held, helm.template("--values", chart / "ci/production-values.yaml").objects)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    config = folder / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{api.server_address[1]}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}
    user = {"name": "u", "user": {}}
    config.write_text(
        yaml.safe_dump({"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"})
    )
    sets = [
        'results.bucket.existingSecret="s3"',
        'coordinator.extraEnv=[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"settings","key":"a"}}}]',
        'worker.extraEnvFrom=[{"secretRef":{"name":"vendor"}}]',
    ]
    given = [word for s in sets for word in ("--set-json", s)]

    def annotations():
        values = ["--values", chart / "ci/production-values.yaml", *given]
        r = helm.template(*values, "--dry-run=server", "--kubeconfig", config, "--disable-openapi-validation")
        of = lambda c: r.of("Deployment", f"-{c}")["spec"]["template"]["metadata"]["annotations"]
        return [of(c).get("checksum/environment") for c in ("coordinator", "worker")]

    try:
        first = annotations()
        check(all(first), f"nothing is looked up: {first}; asked {api.asked}")
        check(annotations() == first, "checksums differ without a change")
        for changed, of_coordinator, of_worker in (
            (("Secret", "s3"), True, False),
            (("ConfigMap", "settings"), True, False),
            (("Secret", "vendor"), False, True),
            (("Secret", "other"), False, False),
        ):
            before = annotations()
            held[changed] = str(int(held[changed]) + 1)
            after = annotations()
            found = tuple(b != a for b, a in zip(before, after))
            check(found == (of_coordinator, of_worker), f"a change of {changed} restarts {found}")
        for key in list(held):
            del held[key]
        check(annotations() == [None, None], "a Secret that is not there is in a checksum")
    finally:
        api.shutdown()
    return 11
