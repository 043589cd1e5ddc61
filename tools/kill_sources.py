"""Sources of bars for import_kill.py: flat files and lakes in a directory and in a bucket, and a server with Polygon's interface.

A source has the command of its import in two states: what is imported before, and what is imported by the process that is killed.
"""

import contextlib
import gzip
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUCKET = "market-data"
KEYS = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "hunter2hunter2"}
API_KEY = "hunter2-polygon-key"
# Midnight in New York of 2024-01-02, seconds, and the sessions as days after it.
FIRST = 1_704_171_600
SESSIONS = (0, 1, 2, 3, 6, 7, 8, 9, 10, 14, 15, 16, 17)
DAY = 86_400
# How long each request of the bucket takes, so that fetching can be interrupted.
DELAY_S = 0.02
PAGE_BARS = 1000
# Each has a folder and a file in the lake of the bucket.
LAKE_SYMBOLS = 40
START_S = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    """Until somebody listens."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise SystemExit(f"nobody listens on port {port}")


class Store:
    """A server of S3 with one bucket, behind a proxy that is slow."""

    def __init__(self, folder):
        self.python = subprocess.check_output([ROOT / "tools/get-venv", "soak/store"], text=True).strip()
        server, proxy, control = free_port(), free_port(), free_port()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        moto = [self.python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(server)]
        slow = ["python3", ROOT / "tools/soak/slow_store.py", "--listen", str(proxy), "--control", str(control), "--to", str(server)]
        self.processes = [subprocess.Popen(moto, env=os.environ | {"TMPDIR": str(folder)}, **quiet), subprocess.Popen(slow, **quiet)]
        for port in (server, proxy, control):
            wait_for(port)
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{server}/{BUCKET}", method="PUT")).close()
        with socket.create_connection(("127.0.0.1", control)) as settings:
            settings.sendall(json.dumps({"delay_s": DELAY_S}).encode() + b"\n")
            settings.makefile().readline()
        self.environment = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy}", **KEYS}

    def put(self, folder, prefix):
        command = [self.python, ROOT / "tests/python/s3_put.py", folder, BUCKET, prefix]
        subprocess.run(command, check=True, env=os.environ | self.environment)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Polygon:
    """Minutes of some tickers over HTTP, page by page; every eleventh request fails. After `left` answers none comes any more."""

    TICKERS = ("AAPL", "BRK.B", "IBM", "MSFT", "KO", "GE")

    def __init__(self, seed):
        chance = random.Random(seed)
        self.bars = {ticker: [] for ticker in self.TICKERS}
        for bars in self.bars.values():
            for session in SESSIONS:
                for minute in range(390):
                    close = round(chance.uniform(10, 500), 2)
                    start = FIRST + session * DAY + (570 + minute) * 60
                    bars.append({"t": start * 1000, "o": close, "h": close + 1, "l": close - 1, "c": close, "v": chance.randrange(10**6) / 4})
        self.left, self.answers, self.requests, self.lock = None, 0, 0, threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                server.answer(self)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        # Clients that are killed are no errors.
        self.http.handle_error = lambda *_: None
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, handler):
        with self.lock:
            self.requests += 1
            failing, silent = self.requests % 11 == 0, self.left is not None and self.answers >= self.left
            if not silent and not failing:
                self.answers += 1
        if silent:
            # Until the client is killed.
            with contextlib.suppress(OSError):
                handler.connection.recv(1)
            handler.close_connection = True
            return
        status, body = 500, {}
        if handler.headers["Authorization"] != f"Bearer {API_KEY}":
            status, body = 401, {"status": "ERROR"}
        elif not failing:
            url = urllib.parse.urlsplit(handler.path)
            ticker, since, until = (url.path.split("/")[at] for at in (4, 8, 9))
            query = dict(urllib.parse.parse_qsl(url.query))
            skip = int(query.pop("cursor", 0))
            own = [bar for bar in self.bars[ticker] if since <= time.strftime("%Y-%m-%d", time.gmtime(bar["t"] / 1000)) <= until]
            page = own[skip : skip + PAGE_BARS]
            status, body = 200, {"status": "OK", "ticker": ticker, "adjusted": False, "resultsCount": len(page), "results": page}
            if skip + len(page) < len(own):
                body["next_url"] = f"{self.url}{url.path}?{urllib.parse.urlencode(query | {'cursor': skip + len(page)})}"
        text = json.dumps(body).encode()
        with contextlib.suppress(OSError):
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(text)))
            handler.end_headers()
            handler.wfile.write(text)


def write_flat(folder, seed, symbols=400):
    """Flat files of a day each: `before` has the first half of them, `all` all, of which one has other values and one fewer symbols."""
    chance = random.Random(seed)
    for number, session in enumerate(SESSIONS):
        rows = []
        for symbol in range(symbols):
            close = round(chance.uniform(10, 500), 2)
            values = f"{close:.2f},{close:.2f},{close + 1:.2f},{close - 1:.2f},{(FIRST + session * DAY) * 10**9},7"
            rows.append(f"S{symbol:04},{chance.randrange(10**6)}.25,{values}\n")
        date = time.strftime("%Y-%m-%d", time.gmtime(FIRST + session * DAY))
        changed = rows if number not in (1, 2) else [row.replace(".25,", ".75,") for row in rows] if number == 1 else rows[: -(symbols // 8)]
        for name, lines in (("before", rows), ("all", changed)):
            if name == "before" and number > len(SESSIONS) // 2:
                continue
            file = folder / name / f"day_aggs_v1/2024/01/{date}.csv.gz"
            file.parent.mkdir(parents=True, exist_ok=True)
            header = "ticker,volume,open,close,high,low,window_start,transactions\n"
            file.write_bytes(gzip.compress((header + "".join(lines)).encode(), 1, mtime=0))


class Source:
    """An import to be killed: its two commands without the data root, and the variables of its process."""

    def __init__(self, before, job, environment=None, server=None):
        self.before, self.job, self.environment, self.server = before, job, environment or {}, server


def flat(trawl, scratch, seed, store=None):
    folder = scratch / "flat"
    write_flat(folder, seed)
    places = [folder / "before", folder / "all"]
    environment = {}
    if store:
        for name in ("before", "all"):
            store.put(folder / name, f"flat/{name}")
        places = [f"s3://{BUCKET}/flat/{name}" for name in ("before", "all")]
        environment = {f"TRAWL_SOURCE_{name}": value for name, value in store.environment.items()}
    command = [trawl, "data", "import", "polygon-flat", "--dataset", "bars", "--json"]
    return Source([*command, places[0]], [*command, places[1]], environment)


def lake(trawl, scratch, seed, store=None):
    """A lake of the bars of flat files; the dataset has those of half of the days before."""
    folder, made = scratch / "for-lake", scratch / "lake-root"
    write_flat(folder, seed + 1, LAKE_SYMBOLS if store else 400)
    for name in ("before", "all"):
        root = made / name
        subprocess.run([trawl, "data", "import", "polygon-flat", folder / name, "--dataset", "x", "--data-root", root], check=True, capture_output=True)
        subprocess.run([trawl, "data", "export", "x", "--hive", "-o", scratch / f"lake-{name}", "--data-root", root], check=True, capture_output=True)
    shutil.rmtree(made)
    place, environment = scratch / "lake-all", {}
    if store:
        store.put(place, "lake")
        place = f"s3://{BUCKET}/lake"
        environment = {f"TRAWL_SOURCE_{name}": value for name, value in store.environment.items()}
    command = [trawl, "data", "import", "--dataset", "bars", "--timeframe", "1d", "--strict", "--json"]
    return Source([*command, scratch / "lake-before"], [*command, place], environment)


def rest(trawl, _scratch, seed):
    server = Polygon(seed)
    command = [trawl, "data", "import", "polygon-rest", "--dataset", "bars", "--json", "--endpoint", server.url, "--requests-per-minute", "0"]
    command += ["--timeframe", "1m", "--symbols", ",".join(Polygon.TICKERS), "--from", "2024-01-02", "--to"]
    return Source([*command, "2024-01-05"], [*command, "2024-01-19"], {"POLYGON_API_KEY": API_KEY}, server)
