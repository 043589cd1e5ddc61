"""The client of the HTTP interface: against a server that answers as the contract says, and against ``trawl serve`` where there is one."""

import asyncio
import contextlib
import http.server
import inspect
import json
import os
import re
import socket
import subprocess
import threading
import urllib.parse

import pytest

import trawl as tw
from conftest import AS_OF, GOLDEN_CROSS
from trawl.remote import TYPES

TOKEN = "a-token-of-the-tests"


class Server(http.server.BaseHTTPRequestHandler):
    """A server that computes with the engine of the wheel. ``faults`` are statuses that it answers first."""

    scans: dict = {}
    keys: dict = {}
    faults: list = []
    seen: list = []
    slow_answers = 0
    #: Bytes that are missing at the end of the next replies of answers and events.
    cut = 0

    def log_message(self, *_):
        pass

    def _send(self, status, body, type="application/json", headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", type)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        cut = self.__class__.cut if status == 200 and ("/answer" in self.path or "/events" in self.path) else 0
        self.wfile.write(data[: len(data) - cut])

    def _fail(self, status, kind, message, **more):
        self._send(status, {"error": {"kind": kind, "message": message, "help": None, "mistakes": [], **more}})

    def _handle(self, body):
        cls = type(self)
        cls.seen.append((self.command, self.path, dict(self.headers)))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._fail(401, "unauthenticated", "no token that is known")
        if cls.faults:
            status = cls.faults.pop(0)
            return self._fail(status, "unavailable", "busy", retry_after_s=0.01)
        url = urllib.parse.urlsplit(self.path)
        parts = url.path.strip("/").split("/")[1:]
        document = dict((body or {}).get("document", {}))
        try:
            if parts == ["version"]:
                return self._send(200, {"version": "0", "numerics": "n", "api": "1", "mode": "serve"})
            if parts == ["datasets"]:
                return self._send(200, tw.datasets())
            if parts[0] == "datasets":
                return self._send(200, tw.Dataset.open(parts[1]).inspect())
            if parts == ["indicators"]:
                return self._send(200, list(tw.indicators().values()))
            if self.command == "POST" and parts in (["scans"], ["why"], ["near"], ["explain"]):
                answer = self._computed(document, body)
                if parts == ["why"]:
                    return self._send(200, answer.why(body["symbols"]))
                key = self.headers.get("Idempotency-Key")
                scan = cls.keys.setdefault(key, f"scan-{len(cls.keys)}")
                cls.scans[scan] = answer
                return self._send(202, {"scan": scan, "state": "running"}, headers=[("Location", f"/v1/scans/{scan}")])
            if parts[0] == "scans" and parts[1] not in cls.scans:
                return self._fail(404, "not_found", f"no scan {parts[1]}")
            if parts[0] == "scans" and parts[-1] == "events":
                lines = "event: accepted\ndata: {}\n\nevent: progress\ndata: {\"segments\": 4, \"done\": 2}\n\n"
                lines += "event: ended\ndata: {\"state\": \"done\"}\n\n"
                return self._send(200, lines.encode(), "text/event-stream")
            if parts[0] == "scans" and parts[-1] == "answer":
                if cls.slow_answers > 0:
                    cls.slow_answers -= 1
                    return self._fail(409, "conflict", "it is still running")
                format = next(name for name, type in TYPES.items() if type == self.headers["Accept"])
                return self._send(200, cls.scans[parts[1]].to_bytes(format), TYPES[format])
            if parts[0] == "scans":
                state = "cancelled" if self.command == "DELETE" else "done"
                return self._send(200, {"scan": parts[1], "state": state})
        except tw.Mistake as mistake:
            places = [vars(place) for place in mistake.mistakes]
            return self._fail(422, "invalid", mistake.message, help=mistake.help, mistakes=places)
        return self._fail(404, "not_found", "no such path")

    def _computed(self, document, body):
        names = {"let": "lets", "def": "defs"}
        clauses = {names.get(key, key): value for key, value in document.items()}
        if "best" in clauses:
            clauses.update(clauses.pop("best") and {})
        return tw.scan(clauses.pop("dataset"), as_of=body.get("as_of"), **clauses)

    def do_GET(self):
        self._handle(None)

    def do_DELETE(self):
        self._handle(None)

    def do_POST(self):
        self._handle(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))


@pytest.fixture
def remote():
    Server.scans, Server.keys, Server.faults, Server.seen, Server.slow_answers, Server.cut = {}, {}, [], [], 0, 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield tw.connect(f"http://127.0.0.1:{server.server_port}", token=TOKEN)
    server.shutdown()
    server.server_close()
    thread.join()


def scanned(place):
    return place.scan("us5", where=GOLDEN_CROSS, select={"rsi": "rsi(14)"}, lets={"a": "close"}, as_of=AS_OF, limit=2)


def test_an_answer_is_that_of_the_engine_here(remote):
    ours, theirs = scanned(tw), scanned(remote)
    assert theirs == ours and theirs.counts == ours.counts and theirs.symbols == ours.symbols
    for format in TYPES:
        assert theirs.to_bytes(format) == ours.to_bytes(format)
    assert theirs.df.equals(ours.df) and theirs.rows == ours.rows and repr(theirs) == repr(ours)
    assert theirs.why("IBM") == ours.why("IBM")


def test_answers_that_take_long_are_waited_for(remote):
    Server.slow_answers = 2
    assert scanned(remote) == scanned(tw)


def test_a_request_is_sent_again_with_the_same_key_while_the_server_is_busy(remote):
    Server.faults = [503, 429]
    assert scanned(remote) == scanned(tw)
    keys = [headers["Idempotency-Key"] for method, path, headers in Server.seen if path == "/v1/scans"]
    assert len(keys) == 3 and len(set(keys)) == 1
    Server.faults = [503] * 20
    with pytest.raises(tw.Unavailable) as caught:
        remote.version()
    assert caught.value.retry_after_s == 0.01 and caught.value.kind == "unavailable"


def test_mistakes_and_refusals_are_those_of_the_engine_here(remote):
    def mistake(place):
        with pytest.raises(tw.Mistake) as caught:
            place.scan("us5", where="close > smaa(close, 50)", as_of=AS_OF)
        return caught.value

    ours, theirs = mistake(tw), mistake(remote)
    assert theirs.mistakes == ours.mistakes and theirs.help == ours.help and str(theirs) == str(ours)
    with pytest.raises(tw.NotFound):
        remote.status("nothing")
    with pytest.raises(tw.Denied):
        tw.connect(f"http://127.0.0.1:{remote._parts.port}", token="wrong").version()
    with pytest.raises(tw.Unavailable, match="does not answer"):
        tw.connect("http://127.0.0.1:9").version()
    with pytest.raises(tw.Mistake, match="plain text"):
        tw.connect("http://example.org", token=TOKEN)
    with pytest.raises(tw.Mistake, match="no address"):
        tw.connect("ftp://example.org")


def test_submitting_watching_and_cancelling(remote):
    scan = remote.submit("us5", where="true", as_of=AS_OF)
    assert [name for name, _ in remote.events(scan)] == ["accepted", "progress", "ended"]
    assert remote.status(scan)["state"] == "done" and remote.cancel(scan)["state"] == "cancelled"
    assert len(remote.answer(scan)) == 5
    assert remote.version()["mode"] == "serve" and remote.datasets() == tw.datasets()


def test_asyncio(remote):
    there = tw.connect_async(f"http://127.0.0.1:{remote._parts.port}", token=TOKEN)

    async def both():
        return await asyncio.gather(*(there.scan("us5", where=f"rsi({n}) > 50", as_of=AS_OF) for n in (5, 14)))

    assert asyncio.run(both()) == [tw.scan("us5", where=f"rsi({n}) > 50", as_of=AS_OF) for n in (5, 14)]


def test_an_answer_that_breaks_off_is_never_taken_for_the_whole(remote, tmp_path):
    scan = remote.submit("us5", where="true", as_of=AS_OF)
    answer = remote.answer(scan)
    whole = answer.to_bytes("csv")
    file = tmp_path / "kept.csv"
    file.write_bytes(b"what was here")
    Server.cut = whole.count(b"") // 2
    with pytest.raises(tw.Unavailable, match="broke off"):
        answer.to_bytes("csv")
    with pytest.raises(tw.Unavailable, match="broke off"):
        answer.write(file)
    assert file.read_bytes() == b"what was here" and os.listdir(tmp_path) == ["kept.csv"]
    Server.cut = 0
    assert answer.to_bytes("csv") == whole and answer.write(file) == [str(file), f"{file}.identity.json"]
    assert file.read_bytes() == whole


def test_a_scan_whose_events_break_off_is_waited_for(remote):
    scan = remote.submit("us5", where="true", as_of=AS_OF)
    Server.cut = 10
    with pytest.raises(tw.Unavailable, match="broke off"):
        list(remote.events(scan))
    threading.Timer(0.3, lambda: setattr(Server, "cut", 0)).start()
    with_bar = remote.scan("us5", where=GOLDEN_CROSS, as_of=AS_OF, progress=True)
    assert with_bar == tw.scan("us5", where=GOLDEN_CROSS, as_of=AS_OF)


def test_files_are_those_of_the_command_line_here(remote, tmp_path):
    ours, theirs = scanned(tw), scanned(remote)
    for name in ("a.csv", "a.json", "a.jsonl", "a.parquet", "a.arrow"):
        for answer, folder in ((ours, tmp_path / "ours"), (theirs, tmp_path / "theirs")):
            folder.mkdir(exist_ok=True)
            answer.write(folder / name)
    names = sorted(os.listdir(tmp_path / "ours"))
    assert names == sorted(os.listdir(tmp_path / "theirs")) and len(names) == 7
    for name in names:
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes(), name
    for answer in (ours, theirs):
        with pytest.raises(tw.Mistake):
            answer.write(tmp_path / "a.txt")


def test_a_midnight_is_its_date_in_bars_of_days(remote):
    import datetime as dt

    expected = tw.scan("us5", where="true", as_of="2013-02-22")
    assert remote.scan("us5", where="true", as_of=dt.datetime(2013, 2, 22)) == expected
    assert remote.scan("us5", where="true", as_of=dt.date(2013, 2, 22)) == expected
    midnight = dt.datetime(2024, 12, 5, tzinfo=dt.timezone.utc)
    assert remote.scan("demo-1m", where="true", as_of=midnight) == tw.scan("demo-1m", where="true", as_of=midnight)


def test_secrets_are_neither_shown_nor_sent_to_others():
    for url in ("http://user:secret@127.0.0.1:1", "http://user:secret@127.0.0.1:no", "http://127.0.0.1:99999", "http://[::1"):
        with pytest.raises(tw.Mistake, match="no address") as caught:
            tw.connect(url)
        assert "secret" not in str(caught.value)
    for host in ("127.example.org", "127.0.0.1.example.org", "localhost.example.org"):
        with pytest.raises(tw.Mistake, match="plain text"):
            tw.connect(f"http://{host}", token=TOKEN)
    assert TOKEN not in repr(tw.connect("http://[::1]:7410", token=TOKEN))


def test_every_method_is_a_coroutine_with_its_types():
    public = {name for name in dir(tw.Remote) if not name.startswith("_")}
    assert public == {name for name in dir(tw.AsyncRemote) if not name.startswith("_")} and len(public) > 20
    for name in public - {"events"}:
        sync, coroutine = getattr(tw.Remote, name), getattr(tw.AsyncRemote, name)
        assert inspect.iscoroutinefunction(coroutine) and not inspect.iscoroutinefunction(sync)
        assert inspect.signature(sync) == inspect.signature(coroutine) and coroutine.__doc__ == sync.__doc__, name
    with pytest.raises(AttributeError):
        tw.connect_async("http://127.0.0.1:1").nothing
    assert inspect.signature(tw.connect).parameters == inspect.signature(tw.connect_async).parameters
    assert inspect.signature(tw.connect).parameters.keys() == inspect.signature(tw.Remote).parameters.keys()


def test_a_bar_of_progress_is_not_drawn_by_threads_of_asyncio(remote, monkeypatch):
    asked = []
    monkeypatch.setattr("trawl.remote.Bar", lambda show, *_: asked.append(show) or contextlib.nullcontext(tw._progress.Bar(False)))
    there = tw.AsyncRemote(remote)

    async def scans():
        await there.scan("us5", where="true", as_of=AS_OF)
        await there.answer(await there.submit("us5", where="true", as_of=AS_OF))
        await there.scan("us5", where="true", as_of=AS_OF, progress=True)

    asyncio.run(scans())
    assert asked == [False, False, True]


def test_events_of_asyncio(remote):
    there = tw.connect_async(f"http://127.0.0.1:{remote._parts.port}", token=TOKEN)

    async def names():
        scan = await there.submit("us5", where="true", as_of=AS_OF)
        return [name async for name, _ in there.events(scan)]

    assert asyncio.run(names()) == ["accepted", "progress", "ended"]


@contextlib.contextmanager
def served():
    """``trawl serve`` on a port of loopback, if this command line has it."""
    program = os.environ.get("TRAWL_BIN", "")
    if not program or subprocess.run([program, "serve", "--help"], capture_output=True).returncode != 0:
        pytest.skip("this command line has no 'serve'")
    child = subprocess.Popen([program, "serve", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        found = None
        for raw in child.stdout:
            found = re.search(rb"http://127\.0\.0\.1:\d+", raw)
            if found:
                break
        assert found, "trawl serve printed no address"
        yield tw.connect(found.group().decode())
    finally:
        child.terminate()
        child.wait(30)


def test_trawl_serve_gives_the_same_bytes(cli, tmp_path):
    with served() as there:
        ours, theirs = scanned(tw), scanned(there)
        assert theirs == ours and theirs.df.equals(ours.df)
        out = tmp_path / "out.csv"
        cli("scan", "--dataset", "us5", "--as-of", AS_OF, "--where", GOLDEN_CROSS, "--select", "rsi(14) as rsi", "--let", "a=close",
            "--limit", "2", "--quiet", "--output", out)  # fmt: skip
        assert theirs.to_bytes("csv") == out.read_bytes() == ours.to_bytes("csv")
        with pytest.raises(tw.Mistake) as caught:
            there.scan("us5", where="close > smaa(close, 50)", as_of=AS_OF)
        assert caught.value.mistakes[0].excerpt == "smaa"
        assert theirs.why("IBM") == ours.why("IBM")


def _ready(child, pattern):
    """The address on the line that a server prints when it is ready."""
    for raw in child.stdout:
        found = re.search(pattern, raw)
        if found:
            return found.group(1).decode()
    raise AssertionError(f"{child.args[:2]} ended before it was ready")


@contextlib.contextmanager
def cluster(folder, of_coordinator=(), of_worker=(), workers=3, address_only=False):
    """etcd, a coordinator with its HTTP interface, and workers, with further options; its address where a plain connection is none."""
    program, etcd = os.environ.get("TRAWL_BIN", ""), os.environ.get("TRAWL_ETCD", "")
    if not program or not etcd:
        pytest.skip("TRAWL_BIN and TRAWL_ETCD name no command line and no etcd")
    if b"--http" not in subprocess.run([program, "coordinator", "--help"], capture_output=True).stdout:
        pytest.skip("this command line has no 'coordinator --http'")
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(2):
            held = stack.enter_context(socket.socket())
            held.bind(("127.0.0.1", 0))
            ports.append(held.getsockname()[1])
            held.close()
        client, peer = (f"http://127.0.0.1:{port}" for port in ports)

        def start(*words, pattern=None):
            pipe = subprocess.PIPE if pattern else subprocess.DEVNULL
            child = subprocess.Popen([*map(str, words)], stdout=pipe, stderr=subprocess.DEVNULL)
            stack.callback(child.wait, 30)
            stack.callback(child.terminate)
            return _ready(child, pattern) if pattern else None

        start(etcd, "--data-dir", folder / "etcd", "--listen-client-urls", client, "--advertise-client-urls", client,
              "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}")  # fmt: skip
        address = start(program, "coordinator", "--etcd", client, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                        "--etcd-timeout-s", 30, *of_coordinator, pattern=rb"http=(https?://127\.0\.0\.1:\d+)")  # fmt: skip
        for _ in range(workers):
            start(program, "worker", "--etcd", client, "--listen", "127.0.0.1:0", "--threads", 1, *of_worker, pattern=rb"(ready)")
        yield address if address_only else tw.connect(address)


def test_a_coordinator_with_three_workers_gives_the_same_bytes(cli, market, tmp_path):
    with cluster(tmp_path) as there:
        clauses = {"where": "xs_pct(roc(20)) > 0.8 and close > sma(50)", "select": ["roc(20) as r"], "rank": "roc(20)"}
        ours, theirs = tw.scan("market", **clauses), there.scan("market", **clauses)
        assert theirs.digest == ours.digest and theirs.df.equals(ours.df) and ours.counts["matched"] > 5
        out = tmp_path / "out.csv"
        cli("scan", "--dataset", "market", "--where", clauses["where"], "--select", "roc(20) as r", "--rank", "roc(20)",
            "--quiet", "--output", out)  # fmt: skip
        assert theirs.to_bytes("csv") == out.read_bytes() == ours.to_bytes("csv")
        workers = there.workers()
        assert len(workers["workers"] if isinstance(workers, dict) else workers) == 3
