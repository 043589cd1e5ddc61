"""A container of Azure's Blob Storage, on Microsoft's own emulator of it, Azurite."""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import json
import os
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from objects import DATASETS, DURABLE, LONG_BARS, ROOT, SECURITY
from processes import Process, free_port
from server import BUCKET
from stage import OUTPUT, Stage, logs

# Imports that begin at once, of which each appends a symbol of its own or is refused.
RACERS = 6
CARGO = ["cargo", "test", "--locked", "--profile", "ci", "--workspace", "--lib", "a_bucket_keeps_what_a_directory_keeps"]


def answer(request):
    """The status and the body of a call."""
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read()


class Azure(Process):
    """Blob Storage by Azurite, with an account and a key of this run."""

    bucket_url, maker, version = f"az://{BUCKET}", "azurite", "2023-11-03"

    def __init__(self, program, folder):
        port, self.account = free_port(), "trawltest"
        self.key = base64.b64encode(os.urandom(64)).decode()
        self.secrets = (self.key,)
        self.url = f"http://127.0.0.1:{port}/{self.account}"
        command = ["node", program, "--blobPort", port, "--location", folder / "azurite", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        super().__init__("azurite", folder / "azurite.log", command, os.environ | {"AZURITE_ACCOUNTS": f"{self.account}:{self.key}"})

    def signed(self, method, path, query):
        """A request with the account's signature."""
        headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": self.version}
        named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        asked = "".join(f"\n{name}:{value}" for name, value in sorted(query.items()))
        # The account of a server without host names of accounts is in the path too.
        text = method + "\n" * 12 + f"{named}/{self.account}/{self.account}/{path}{asked}"
        signature = base64.b64encode(hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()).decode()
        headers["Authorization"] = f"SharedKey {self.account}:{signature}"
        return urllib.request.Request(f"{self.url}/{path}?{urllib.parse.urlencode(query)}", method=method, headers=headers)

    def ready(self):
        """Answers, and has the container."""
        with contextlib.suppress(OSError):
            return answer(self.signed("PUT", BUCKET, {"restype": "container"}))[0] in (201, 409)
        return False

    def variables(self):
        account = {"AZURE_STORAGE_ACCOUNT_NAME": self.account, "AZURE_STORAGE_ACCOUNT_KEY": self.key}
        return account | {"AZURE_STORAGE_ENDPOINT": self.url}

    def keys(self, prefix):
        """Names of blobs, however many pages they take."""
        found, marker = [], ""
        while True:
            query = {"restype": "container", "comp": "list", "prefix": prefix} | ({"marker": marker} if marker else {})
            text = answer(self.signed("GET", BUCKET, query))[1].decode()
            found += re.findall("<Name>([^<]*)</Name>", text)
            marker = (re.findall("<NextMarker>([^<]+)</NextMarker>", text) or [""])[0]
            if not marker:
                return found


def azure(stage):
    """What a container of Azure's does, on a stage of its own."""
    folder = stage.folder / Azure.maker
    folder.mkdir()
    store = Azure(stage.programs[Azure.maker], folder)
    alone = Stage(stage.programs, folder, stage.claims, store)
    try:
        alone.start(store, store.ready)
        for part in (cluster, racing, parts, removed, tests):
            part(alone, f"`{store.bucket_url.split(':')[0]}://`")
    finally:
        alone.stop()


def cluster(stage, scheme):
    name = "market"
    stage.synth(name, 500, 300)
    expected = stage.expected(name)
    running = stage.cluster("answers", stage.store.variables())
    said, _ = stage.scan(running, name)
    stage.same(DATASETS, f"{scheme}: a coordinator and three workers share nothing but the bucket: the answer", said, expected)
    scan = re.search(r'"scan":\s*"([^"]+)"', running.command("scans", "list", "--json"))[1]
    stage.restart(running.coordinators[0])
    said = stage.without_bucket(running, "scans", "results", scan, *OUTPUT)[0]
    stage.same(DURABLE, f"{scheme}: the next leader gives the answer from the bucket", said, expected)
    stage.no_secret(SECURITY, logs(running))
    stage.end_cluster(running)


def racing(stage, scheme):
    """Imports that end at the same time: each either makes a head or changes nothing."""
    # Of its own: real bars are not added to a synthetic dataset.
    name, row = "race", "date,open,high,low,close,volume\n2024-01-02,1,1,1,1,1\n"
    first = stage.folder / "FIRST.csv"
    first.write_text(row)
    stage.trawl("data", "import", first, "--dataset", name)
    symbols = lambda: json.loads(stage.trawl("data", "inspect", name, "--json"))["symbols"]
    before, listed = len(stage.store.keys(f"data/{name}/heads/")), symbols()
    environment = {n: os.environ[n] for n in ("PATH", "HOME") if n in os.environ} | stage.store.variables()
    children = []
    for number in range(RACERS):
        bars = stage.folder / f"X{number}.csv"
        bars.write_text(row)
        own = {"TRAWL_DATA_ROOT": stage.data, "TRAWL_DATA_CACHE": str(stage.folder / f"cache-{number}")}
        command = [stage.programs["trawl"], "data", "import", bars, "--dataset", name]
        children.append(subprocess.Popen(list(map(str, command)), env=environment | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [(child.communicate()[0], child.returncode) for child in children]
    succeeded = sum(code == 0 for _, code in said)
    refused = sum(code != 0 and "another import" in text for text, code in said)
    after = len(stage.store.keys(f"data/{name}/heads/"))
    kept = symbols() - listed
    told = f"{succeeded} succeeded, {refused} refused, {after - before} new heads, {kept} new symbols"
    fits = succeeded >= 1 and succeeded + refused == RACERS and after - before == succeeded == kept
    stage.claims.add(DATASETS, f"{scheme}: of {RACERS} imports that end at once each makes a snapshot or is refused", told, fits)


def parts(stage, scheme):
    name = "long"
    stage.synth(name, 64, LONG_BARS)
    said = stage.scan_alone(name, cache="empty")
    stage.same(DATASETS, f"{scheme}: files above 16 MiB are put and fetched in parts: the answer from an empty cache", said, stage.expected(name))
    ended = stage.ran("data", "inspect", name, "--verify", cache="verify")
    stage.claims.add(DATASETS, f"{scheme}: what was put has the digests of the manifest", f"exit code {ended.returncode}", ended.returncode == 0)


def removed(stage, scheme):
    stage.trawl("data", "rm", "long", "--grace", "0s")
    left = stage.store.keys("data/long/")
    heads = [key for key in left if key.startswith("data/long/heads/")]
    stage.claims.add(DATASETS, f"{scheme}: `data rm --grace 0s` leaves nothing but heads", f"{len(left)} objects left", heads and heads == left)


def tests(stage, scheme):
    """Trawl's own test of a store of results: 1,001 groups, more than a page of a listing."""
    environment = os.environ | stage.store.variables() | {"TRAWL_BUCKET_TEST": f"{stage.store.bucket_url}/tests"}
    said = subprocess.run(CARGO, cwd=ROOT, env=environment, capture_output=True, text=True).stdout
    passed = sum(int(found) for found in re.findall(r"(\d+) passed", said))
    failed = sum(int(found) for found in re.findall(r"(\d+) failed", said))
    claim = f"{scheme}: a scan of 1,001 groups of results: put once, listed, read, deleted"
    stage.claims.add("tests", claim, f"{passed} passed, {failed} failed", passed and not failed)
