"""Keys that are disabled while a cluster runs, and keys that expire and that a token in a file renews."""

import json
import threading
import time

from processes import wait_for
from server import ShortLived
from stage import logs

DURABLE, DATASETS, SECURITY = "docs/durability.md", "docs/datasets.md", "docs/security.md"
NAME = "keys"
SECRETS = {user: f"{user}-secret-of-this-test" for user in ("first", "second")}
# Longest that a scan may take whose results cannot be stored, see 'the store is full, unreachable or denies access'.
REFUSED_SECONDS = 60
# While the key is disabled a scan begins; its first puts fail.
DISABLED_SECONDS = 5
# A token's life, how often a new one is written, and how long scans go on: several lives.
TOKEN_SECONDS, NEW_TOKEN_SECONDS, ROTATED_SECONDS = 20, 8, 60


def disabled_keys(stage):
    """A key is disabled, and another one takes its place by a restart of each process."""
    claim, minio = stage.claims.add, stage.store
    stage.synth(NAME, 200, 100)
    expected = stage.expected(NAME)
    for user, secret in SECRETS.items():
        minio.add_user(user, secret)
    cluster = stage.cluster("disabled", minio.variables("first", SECRETS["first"]))
    stage.same(DURABLE, "a cluster runs with a key of its own", stage.scan(cluster, NAME)[0], expected)
    # By name a scan asks the bucket for the newest snapshot; by the snapshot's id it asks for nothing but room for its results.
    listed = json.loads(stage.trawl("data", "list", "--json"))
    pinned = f"{NAME}@{next(dataset['snapshot'] for dataset in listed if dataset['name'] == NAME)}"
    expected_pinned = stage.expected(pinned)
    minio.enable("first", False)

    def refused(dataset, claimed, at_least, at_most):
        began = time.monotonic()
        said, code = stage.scan(cluster, dataset)
        took = time.monotonic() - began
        told = f"exit code {code} after {took:.0f} s: {reason(said)}"
        holds = code == 1 and at_least <= took <= at_most and "InvalidAccessKeyId" in said
        claim(DURABLE, claimed, told, holds)

    refused(NAME, "its key is disabled: a scan whose bars have to be looked for fails at once, with the store's own message", 0, 10)
    text = "the bars are known: puts of results are tried again for about half a minute, then the scan fails with that message"
    refused(pinned, text, 15, REFUSED_SECONDS)
    running = stage.scan(cluster, pinned, wait=False)
    time.sleep(DISABLED_SECONDS)
    minio.enable("first", True)
    said = running.communicate()[0]
    stage.same(DURABLE, f"the same, but the key works again after {DISABLED_SECONDS} s: the answer", said, expected_pinned)
    for process in cluster.processes():
        stage.restart(process, **minio.variables("second", SECRETS["second"]))
    minio.enable("first", False)
    wait_for("the workers are registered", lambda: stage.registered(cluster) == len(cluster.workers), REFUSED_SECONDS)
    said, _ = stage.scan(cluster, NAME)
    stage.same(DURABLE, "each process was restarted with a second key, and the first is disabled: the answer", said, expected)
    stage.no_secret(SECURITY, logs(cluster))
    stage.end_cluster(cluster)


class Tokens(threading.Thread):
    """Writes a new token to a file before the last one expires, as Kubernetes does."""

    def __init__(self, issuer, path):
        super().__init__(daemon=True)
        self.issuer, self.path, self.written = issuer, path, 0
        self.over, self.paused = threading.Event(), False
        self.write()

    def write(self):
        other = self.path.with_suffix(".new")
        other.write_text(self.issuer.token(TOKEN_SECONDS))
        other.replace(self.path)
        self.written += 1

    def run(self):
        while not self.over.wait(NEW_TOKEN_SECONDS):
            if not self.paused:
                self.write()


def web_identity(stage):
    """Keys that a role gives for a token in a file, and that expire with it."""
    claim, minio = stage.claims.add, stage.store
    stage.synth(NAME, 200, 100)
    expected = stage.expected(NAME)
    tokens = Tokens(stage.issuer, stage.folder / "token")
    tokens.start()
    variables = {name: value for name, value in minio.variables().items() if "_KEY" not in name}
    exchange = ShortLived(minio, TOKEN_SECONDS)
    variables |= {"AWS_WEB_IDENTITY_TOKEN_FILE": str(tokens.path), "AWS_ROLE_ARN": minio.role()}
    variables |= {"AWS_ENDPOINT_URL_STS": exchange.url}
    said = stage.scan_alone(NAME, cache="by-token", variables=variables)
    stage.same(DATASETS, "a command reads bars with the keys that a role gives for a token in a file: the answer", said, expected)
    cluster = stage.cluster("identity", variables)
    end, equal = time.monotonic() + ROTATED_SECONDS, []
    while time.monotonic() < end:
        equal.append(stage.scan(cluster, NAME)[0] == expected)
        time.sleep(1)
    claim(
        DURABLE,
        f"keys and tokens end after {TOKEN_SECONDS} s and are renewed from the file while a cluster runs: no scan fails",
        f"{sum(equal)} of {len(equal)} scans in {ROTATED_SECONDS} s, {tokens.written} tokens, {exchange.exchanges} exchanges",
        all(equal) and not exchange.refused,
    )
    tokens.paused = True
    time.sleep(TOKEN_SECONDS + NEW_TOKEN_SECONDS)
    said, code = stage.scan(cluster, NAME)
    told = f"exit code {code}: {reason(said)}"
    claim(DURABLE, "a token that nobody renews: the scan fails with the store's own message", told, code == 1)
    tokens.write()
    tokens.paused = False
    said, _ = stage.scan(cluster, NAME)
    stage.same(DURABLE, "with a new token in the file scans succeed, without a restart: the answer", said, expected)
    tokens.over.set()
    tokens.join()
    stage.no_secret(SECURITY, logs(cluster) + tokens.path.name)
    stage.end_cluster(cluster)


def reason(said):
    """The line of a failure that names the store."""
    lines = [line.strip() for line in said.splitlines()]
    return next((line for line in lines if "s3://" in line), " ".join(lines)[-200:])
