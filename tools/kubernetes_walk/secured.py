"""A release as production has it, without cert-manager: certificates in Secrets, an etcd with a CA of its own, users with tokens."""

import json
import os

from network import GATEWAY
from processes import Process, wait_for
from stage import NAMESPACE, OUTPUT, UP_SECONDS

PAGE = "docs/kubernetes/install.md"
PORT = 2579


def secret(stage, name, **files):
    arguments = [f"--from-file={key.replace('_', '.')}={path}" for key, path in files.items()]
    stage.kubernetes.do("kubectl", "--namespace", NAMESPACE, "create", "secret", "generic", name, *arguments)


def users(stage):
    """A user with a token, her line in the file of tokens, and both as Secrets, once."""
    if (stage.folder / "token").exists():
        return
    said = stage.ran("tokens", "new", "alice", "--roles", "submit,read").stdout.split("\n")
    token, line = [text for text in said if text.strip()][:2]
    (stage.folder / "token").write_text(token)
    (stage.folder / "tokens").write_text(line + "\n")
    (stage.folder / "token").chmod(0o600)
    secret(stage, "users", tokens=stage.folder / "tokens")
    secret(stage, "alice", token=stage.folder / "token")


def secured(stage):
    """Takes the place of the release before."""
    kubernetes, claim = stage.kubernetes, stage.claims.add
    stage.uninstall()
    folder = stage.folder / "certificates"
    made = stage.ran("certs", "dev", "--dir", folder, "--host", GATEWAY)
    if made.returncode != 0:
        raise RuntimeError(made.stderr)
    start_etcd(stage, folder)
    for name in ("coordinator", "worker", "client"):
        secret(stage, f"own-{name}", ca_crt=folder / "ca.pem", tls_crt=folder / f"{name}.pem", tls_key=folder / f"{name}.key")
    for name in ("coordinator", "worker"):
        at = folder / f"etcd-{name}"
        secret(stage, f"etcd-{name}", ca_crt=folder / "etcd-ca.pem", tls_crt=f"{at}.pem", tls_key=f"{at}.key")
    users(stage)
    chosen = json.loads(stage.values.read_text()) | {
        "etcd": {"endpoints": [f"https://{GATEWAY}:{PORT}"], "tls": {"coordinatorSecret": "etcd-coordinator", "workerSecret": "etcd-worker"}},
        "tls": {"mode": "existingSecrets", "existingSecrets": {name: f"own-{name}" for name in ("coordinator", "worker", "client")}},
        "tokens": {"existingSecret": "users"},
        "tests": {"tokenSecret": "alice"},
    }
    path = stage.folder / "secured.json"
    path.write_text(json.dumps(chosen))
    seconds, _ = stage.install("trawl", "--values", path)
    tested = kubernetes.ran("helm", "--namespace", NAMESPACE, "test", "trawl", "--logs")
    claim(
        PAGE,
        "`tls.mode=existingSecrets`, etcd of another CA, tokens; `helm test` with `tests.tokenSecret`",
        f"ready after {seconds:.0f} s; the test's exit code is {tested.returncode}" + ("" if tested.returncode == 0 else tested.stdout[-300:]),
        tested.returncode == 0,
    )
    asked = ("scan", "--dataset", "demo", "--where", "close > sma(close, 20)", *OUTPUT)
    address = stage.address.replace("http:", "https:")
    shown = ("--tls-ca", folder / "ca.pem", "--tls-cert", folder / "client.pem", "--tls-key", folder / "client.key")
    ask = lambda *more: stage.ran(*asked, "--fresh", "--coordinator", address, *shown, *more)
    with_token, without = ask("--token-file", stage.folder / "token"), ask()
    plain = stage.ran(*asked, "--fresh", "--coordinator", stage.address, "--insecure")
    claim(
        PAGE,
        "with tokens every user needs one, and a certificate",
        f"exit code {with_token.returncode} with both, {without.returncode} without a token, {plain.returncode} in plain text",
        with_token.returncode == 0 and with_token.stdout == stage.ran(*asked).stdout and without.returncode and plain.returncode,
    )
    said = [text for text in stage.ran("tokens", "new", "bob", "--roles", "submit,read").stdout.split("\n") if text.strip()]
    (stage.folder / "bob").write_text(said[0])
    (stage.folder / "bob").chmod(0o600)
    with open(stage.folder / "tokens", "a") as tokens:
        tokens.write(said[1] + "\n")
    refused = ask("--token-file", stage.folder / "bob").returncode
    update = ("create", "secret", "generic", "users", f"--from-file=tokens={stage.folder / 'tokens'}", "--dry-run=client", "--output=yaml")
    kubernetes.do("kubectl", "--namespace", NAMESPACE, "apply", "-f", "-", text=kubernetes.do("kubectl", "--namespace", NAMESPACE, *update))
    before = restarts(stage)
    wait_for("the new token counts", lambda: ask("--token-file", stage.folder / "bob").returncode == 0, UP_SECONDS)
    claim(
        PAGE,
        "a changed Secret of tokens is loaded without a restart",
        f"bob's exit code {refused}, then 0; {restarts(stage) - before} restarts",
        refused != 0 and restarts(stage) == before,
    )
    tokens = [(stage.folder / name).read_text().strip() for name in ("token", "bob")]
    logs = kubernetes.do("kubectl", "--namespace", NAMESPACE, "logs", "--selector=app.kubernetes.io/component=coordinator", "--tail=-1")
    claim(PAGE, "no token is in a log", f"{sum(token in logs for token in tokens)} found", not any(token in logs for token in tokens))


def restarts(stage):
    return sum(p["status"]["containerStatuses"][0]["restartCount"] for p in stage.pods("coordinator").values())


def start_etcd(stage, folder):
    url, peer = f"https://{GATEWAY}:{PORT}", "http://127.0.0.1:2580"
    command = [stage.kubernetes.programs["etcd"], "--name", "own", "--data-dir", stage.folder / "secured-etcd"]
    command += ["--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer]
    command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"own={peer}", "--client-cert-auth"]
    command += ["--trusted-ca-file", folder / "etcd-ca.pem", "--cert-file", folder / "etcd.pem", "--key-file", folder / "etcd.key"]
    process = Process("secured-etcd", stage.folder / "secured-etcd.log", command, dict(os.environ))
    process.start()
    stage.kubernetes.processes.append(process)
