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
    """Polygon's interface: bars of some tickers over HTTP, page by page; every eleventh request fails. After `left` answers none comes any more."""

    TICKERS = ("AAPL", "BRK.B", "IBM", "MSFT", "KO", "GE")
    # A company that changes its ticker, and from when on.
    RENAMED = ("FB", "META", 7)

    def __init__(self, seed, amended=False):
        chance = random.Random(seed)
        self.bars = {ticker: [] for ticker in self.TICKERS}
        for bars in self.bars.values():
            for session in SESSIONS:
                for minute in range(390):
                    close = round(chance.uniform(10, 500), 2)
                    start = FIRST + session * DAY + (570 + minute) * 60
                    bars.append({"t": start * 1000, "o": close, "h": close + 1, "l": close - 1, "c": close, "v": chance.randrange(10**6) / 4})
        # Daily bars of all stocks by date; amended: a day has other values, another one fewer stocks.
        self.days = {}
        old, new, change = self.RENAMED
        for number, session in enumerate(SESSIONS):
            names = [f"S{symbol:04}" for symbol in range(300)] + [new if session >= change else old]
            rows, close_of_day = [], (FIRST + session * DAY + 16 * 3600) * 1000
            for name in names:
                close = round(chance.uniform(10, 500), 2)
                rows.append({"T": name, "o": close, "h": close + 1, "l": close - 1, "c": close, "v": chance.randrange(10**6) / 4, "t": close_of_day})
            if amended and number == 1:
                rows = [row | {"v": row["v"] + 1} for row in rows]
            if amended and number == 2:
                rows = rows[20:]
            self.days[date_of(session)] = rows
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

    def results(self, path, query):
        """The results of a question, what else its answer says, and the most of a page; `None` for what there is not."""
        match path.strip("/").split("/"):
            case ["v2", "aggs", "ticker", ticker, "range", _, _, since, until]:
                own = [bar for bar in self.bars[ticker] if since <= time.strftime("%Y-%m-%d", time.gmtime(bar["t"] / 1000)) <= until]
                return own, {"ticker": ticker, "adjusted": False}, PAGE_BARS
            case ["v2", "aggs", "grouped", *_, date]:
                rows = self.days.get(date, [])
                return rows, {"adjusted": False}, len(rows) + 1
            case ["stocks", "v1", "splits"]:
                return [{"ticker": f"S{n:04}", "execution_date": date_of(6), "split_from": 1, "split_to": 2} for n in range(40)], {}, 15
            case ["stocks", "v1", "dividends"]:
                return [{"ticker": f"S{n:04}", "ex_dividend_date": date_of(8), "cash_amount": 0.25} for n in range(40)], {}, 15
            case ["v3", "reference", "tickers"]:
                if query["active"] == "false":
                    return [{"ticker": "S0299", "name": "Gone", "delisted_utc": f"{date_of(15)}T00:00:00Z"}], {}, 90
                old, new, change = self.RENAMED
                names = [(f"S{n:04}", f"F{n}") for n in range(299)] + [(new if query["date"] >= date_of(change) else old, "FM")]
                return [{"ticker": name, "name": f"Stock {name}", "composite_figi": figi} for name, figi in names], {}, 90
            case ["vX", "reference", "tickers", "FM", "events"]:
                old, new, change = self.RENAMED
                changes = (("2012-05-18", old), (date_of(change), new))
                return {"events": [{"date": date, "ticker_change": {"ticker": name}} for date, name in changes]}, {}, None
        return None

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
            query = dict(urllib.parse.parse_qsl(url.query))
            skip = int(query.pop("cursor", 0))
            found = self.results(url.path, query)
            if found is None:
                status, body = 404, {"status": "NOT_FOUND"}
            else:
                results, more, most = found
                page = results if most is None else results[skip : skip + most]
                status, body = 200, {"status": "OK", "results": page} | more
                if most is not None:
                    body["resultsCount"] = len(page)
                    if skip + len(page) < len(results):
                        body["next_url"] = f"{self.url}{url.path}?{urllib.parse.urlencode(query | {'cursor': skip + len(page)})}"
        text = json.dumps(body).encode()
        with contextlib.suppress(OSError):
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(text)))
            handler.end_headers()
            handler.wfile.write(text)


def date_of(session):
    """The date of a session, given as days after the first."""
    return time.strftime("%Y-%m-%d", time.gmtime(FIRST + session * DAY))


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


def over_http(trawl, servers, before, job):
    """Imports from two servers, which may know different bars: answers of one are not mixed with those of the other."""
    command = [trawl, "data", "import", "polygon-rest", "--dataset", "bars", "--json", "--requests-per-minute", "0", "--endpoint"]
    commands = ([*command, server.url, *words] for server, words in zip(servers, (before, job), strict=True))
    return Source(*commands, {"POLYGON_API_KEY": API_KEY}, servers[1])


def days(last):
    return ["--from", date_of(0), "--to", date_of(last)]


def rest(trawl, _scratch, seed):
    """Minutes of named symbols."""
    server = Polygon(seed)
    words = ["--timeframe", "1m", "--symbols", ",".join(Polygon.TICKERS)]
    return over_http(trawl, (server, server), [*words, *days(3)], [*words, *days(17)])


def grouped(trawl, _scratch, seed):
    """All stocks day by day; days that the dataset has are asked for again, and have other values and fewer stocks."""
    servers = (Polygon(seed), Polygon(seed, amended=True))
    return over_http(trawl, servers, ["--universe", *days(8)], ["--universe", "--again", *days(17)])


def listings(trawl, _scratch, seed):
    """All stocks with tickers, changes of tickers, delistings, splits and dividends."""
    server = Polygon(seed)
    tables = ["--listings", "--corporate-actions"]
    return over_http(trawl, (server, server), ["--universe", *days(6), *tables], ["--universe", *days(17), *tables])
