"""Scans on a server: ``trawl serve``, or a coordinator. Only Python's standard library is used for HTTP.

The interface is version 1 of ``docs/http.md``. A connection is made for each request, so that an object may be used by several threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import ipaddress
import json
import os
import random
import ssl
import time
import urllib.parse
import uuid
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from typing import Any, Callable, TypeVar, cast

from . import _frames, _native
from ._chart import Chart, Texts, marked
from ._document import Select, as_times, columns, document, whole
from ._progress import Bar
from ._scan import Explanation, Features, Study, Time, checked_device
from .answer import Answer
from .errors import Cancelled, Mistake, TrawlError, Unavailable, of_body
from .indicators import Indicator, by_name

T = TypeVar("T")

#: What each format is called in HTTP.
TYPES = {
    "arrow": "application/vnd.apache.arrow.stream",
    "csv": "text/csv",
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
#: Seconds that one request may take without a byte.
TIMEOUT_S = 90.0
#: The same where a whole history is computed before the first byte.
HISTORY_TIMEOUT_S = 3600.0
HISTORY_PATHS = ("/v1/panel", "/v1/signals", "/v1/features", "/v1/study", "/v1/chart")
#: Seconds that one request waits for an answer; the server's limit is 60.
WAIT_S = 20
#: Tries of a request that the server refused for now.
TRIES_MAX = 5
#: The longest pause between two tries, in seconds.
PAUSE_MAX_S = 5.0
#: The largest body that is read, in bytes.
BODY_BYTES_MAX = 4 << 30


class Remote:
    """A server. Made by :func:`connect`."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        ca: str | os.PathLike[str] | None = None,
        certificate: tuple[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        parts = _address(url)
        if token_file is not None:
            with open(token_file, encoding="utf-8") as file:
                token = file.read().strip()
        if token is not None and parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
            raise Mistake("a token would be sent as plain text", help="use https://, or a server on this machine")
        self._parts = parts
        self._token = token
        self._timeout_s = timeout_s
        self._tls = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=os.fspath(ca) if ca is not None else None)
            if certificate is not None:
                self._tls.load_cert_chain(*certificate)

    def __repr__(self) -> str:
        return f"<Remote {self._parts.scheme}://{self._parts.netloc}>"

    # Requests ----------------------------------------------------------------------------------------------------------

    def _connection(self, path: str) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        usual = HISTORY_TIMEOUT_S if path in HISTORY_PATHS else TIMEOUT_S
        timeout_s = usual if self._timeout_s is None else self._timeout_s
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)

    def _send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        all_headers = {"Accept": "application/json", "User-Agent": f"trawl-python/{_native.__version__}", **(headers or {})}
        if self._token is not None:
            all_headers["Authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            all_headers["Content-Type"] = "application/json"
        connection = self._connection(path)
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, data, all_headers)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            message = f"{self._parts.scheme}://{self._parts.netloc} does not answer: {error}"
            raise Unavailable(message, "unavailable") from error

    def _once(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[bytes, http.client.HTTPResponse]:
        connection, response = self._send(method, path, body, headers)
        try:
            announced = response.length
            # Without a length, as from a proxy of HTTP/1.0, a part could be taken for the whole.
            whole = announced is not None or response.chunked or response.status >= 400
            data = response.read(BODY_BYTES_MAX)
            whole = whole and (announced is None or len(data) == announced) and not (response.chunked and response.read(1))
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the server's answer broke off: {error}", "unavailable") from error
        finally:
            connection.close()
        if not whole:
            raise Unavailable("the server's answer broke off, or is too large", "unavailable")
        if response.status >= 400:
            raise _error(response, data)
        return data, response

    def _request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[bytes, http.client.HTTPResponse]:
        """A request that may be repeated: it is, when the server says that it is busy or cannot be reached."""
        for attempt in range(TRIES_MAX):
            try:
                return self._once(method, path, body, headers)
            except Unavailable as error:
                if attempt + 1 == TRIES_MAX:
                    raise
                after = error.retry_after_s if error.retry_after_s is not None else 0.1 * 2**attempt
                time.sleep(min(after, PAUSE_MAX_S) * random.uniform(0.75, 1.25))
        raise AssertionError("unreachable")

    def _json(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        return json.loads(self._request(method, path, body, headers)[0])

    # What one can ask ---------------------------------------------------------------------------------------------------

    def version(self) -> dict[str, Any]:
        """Version and mode of the server."""
        return self._json("GET", "/v1/version")

    def datasets(self) -> list[dict[str, Any]]:
        """The server's datasets, as ``trawl data list --json``."""
        found = self._json("GET", "/v1/datasets")
        return found.get("datasets", found) if isinstance(found, dict) else found

    def inspect(self, dataset: str, symbol: str | None = None) -> dict[str, Any]:
        """What a dataset has, as ``trawl data inspect --json``."""
        query = f"?symbol={_quoted(symbol)}" if symbol else ""
        return self._json("GET", f"/v1/datasets/{_quoted(dataset)}{query}")

    def coverage(self, dataset: str) -> Any:
        """Days of a dataset with their numbers of bars."""
        return self._json("GET", f"/v1/datasets/{_quoted(dataset)}/coverage")

    def indicators(self, search: str | None = None) -> dict[str, Indicator]:
        """As :func:`trawl.indicators`: those of the server, which may be of another release."""
        return by_name(self._json("GET", "/v1/indicators"), search)

    def indicator(self, name: str) -> Indicator:
        """As :func:`trawl.indicator`."""
        return Indicator(self._json("GET", f"/v1/indicators/{_quoted(name)}"))

    def workers(self) -> Any:
        """The cluster's workers."""
        return self._json("GET", "/v1/workers")

    def scan(
        self,
        dataset: str | None = None,
        where: str | None = None,
        *,
        as_of: Time = None,
        priority: str | None = None,
        deadline_s: float | None = None,
        allow_partial: bool = False,
        fresh: bool = False,
        idempotency_key: str | None = None,
        progress: bool | None = None,
        **clauses: Any,
    ) -> Answer:
        """As :func:`trawl.scan`, on the server. Ctrl-C cancels the scan there."""
        body = self._body(dataset, where, as_of, clauses)
        scan = self._submit(body, priority, deadline_s, allow_partial, fresh, idempotency_key)
        return self._answer(scan, body, progress)

    def sweep(self, dataset: str, where: str | None = None, *, over: Any, **clauses: Any) -> Answer:
        """As :func:`trawl.sweep`, on the server."""
        return self.scan(dataset, where, sweep=over, **clauses)

    def submit(self, dataset: str | None = None, where: str | None = None, *, as_of: Time = None, **how: Any) -> str:
        """Submits a scan and returns its id at once; :meth:`answer` waits for it."""
        own = ("priority", "deadline_s", "allow_partial", "fresh", "idempotency_key")
        named = [how.pop(name, None) for name in own]
        return self._submit(self._body(dataset, where, as_of, how), *named)

    def answer(self, scan: str, *, progress: bool | None = None) -> Answer:
        """Waits for a scan that was submitted."""
        return self._answer(scan, None, progress)

    def status(self, scan: str) -> dict[str, Any]:
        """State of a scan."""
        return self._json("GET", f"/v1/scans/{_quoted(scan)}")

    def scans(self, **filters: Any) -> list[dict[str, Any]]:
        """Scans of the server: ``limit``, ``active``, ``state``, ``owner``, ``dataset``, ``before``."""
        query = urllib.parse.urlencode({key: value for key, value in filters.items() if value is not None})
        return self._json("GET", "/v1/scans" + (f"?{query}" if query else ""))["scans"]

    def cancel(self, scan: str) -> dict[str, Any]:
        """Cancels a scan."""
        return self._json("DELETE", f"/v1/scans/{_quoted(scan)}")

    def report(self, scan: str) -> dict[str, Any]:
        """How a run went."""
        return self._json("GET", f"/v1/scans/{_quoted(scan)}/report")

    def events(self, scan: str) -> Generator[tuple[str, dict[str, Any]], None, None]:
        """Events of a scan (``accepted``, ``progress``, ``ended``, ``refused``) as they come, each with its data.

        Raises :class:`Unavailable` for a stream that breaks off before the end of the scan."""
        connection, response = self._send(
            "GET", f"/v1/scans/{_quoted(scan)}/events", headers={"Accept": "text/event-stream"}
        )
        try:
            if response.status >= 400:
                raise _error(response, response.read())
            name, data = "message", []
            for line in self._lines(response):
                if line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("data:"):
                    data.append(line[5:].strip())
                elif not line and data:
                    yield name, json.loads("\n".join(data))
                    if name in ("ended", "refused"):
                        return
                    name, data = "message", []
            raise Unavailable("the events of the scan broke off", "unavailable")
        finally:
            connection.close()

    def _lines(self, response: http.client.HTTPResponse) -> Iterator[str]:
        try:
            for raw in response:
                yield raw.decode().rstrip("\r\n")
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the events of the scan broke off: {error}", "unavailable") from error

    def explain(
        self, dataset: str | None = None, where: str | None = None, *, as_of: Time = None, **clauses: Any
    ) -> dict[str, Any]:
        """As :func:`trawl.explain`, on the server."""
        return Explanation(self._json("POST", "/v1/explain", self._body(dataset, where, as_of, clauses)))

    def near(
        self,
        dataset: str | None = None,
        where: str | None = None,
        *,
        most: int = 1,
        as_of: Time = None,
        **clauses: Any,
    ) -> Any:
        """As :func:`trawl.near`, on the server."""
        return self._json("POST", "/v1/near", {**self._body(dataset, where, as_of, clauses), "most": most})

    def series(
        self,
        dataset: str,
        symbol: str,
        exprs: Select = (),
        *,
        bars: bool = True,
        start: Time = None,
        end: Time = None,
        as_of: Time = None,
    ) -> Any:
        """Bars and expressions of one symbol along its bars, as a frame."""
        body = {"dataset": dataset, "symbol": symbol, "exprs": columns(exprs) or [], "bars": bars}
        times = {"from": start, "to": end, "as_of": as_of}
        body.update({key: self._time(dataset, when) for key, when in times.items() if when is not None})
        data, _ = self._request("POST", "/v1/series", body, {"Accept": TYPES["arrow"]})
        return _frames.default(_native.table_of_ipc(data))

    def panel(
        self,
        dataset: str | None = None,
        select: Select | None = None,
        *,
        where: str = "true",
        start: Time = None,
        end: Time = None,
        forward: Sequence[int] = (),
        matches_only: bool = False,
        split: Time = None,
        folds: int | None = None,
        embargo: int = 0,
        scale: bool = False,
        **clauses: Any,
    ) -> Any:
        """As :func:`trawl.panel`, on the server, which writes the table while it computes it."""
        body = self._over_history(dataset, {"where": where, "select": select, **clauses}, start, end, split)
        body.update(_panel_keys(forward, matches_only, folds, embargo, scale))
        return _frames.default(self._table("/v1/panel", body))

    def signals(
        self,
        dataset: str | None = None,
        where: str | None = None,
        *,
        start: Time = None,
        end: Time = None,
        wide: bool = True,
        **clauses: Any,
    ) -> Any:
        """As :func:`trawl.signals`, on the server."""
        body = self._over_history(dataset, {"where": where, **clauses}, start, end)
        return _frames.default(self._table("/v1/signals", {**body, "wide": wide}))

    def features(
        self,
        dataset: str | None = None,
        select: Select | None = None,
        *,
        window: int,
        where: str = "true",
        start: Time = None,
        end: Time = None,
        forward: Sequence[int] = (),
        matches_only: bool = False,
        split: Time = None,
        folds: int | None = None,
        embargo: int = 0,
        scale: bool = False,
        device: str = "cpu",
        **clauses: Any,
    ) -> Features:
        """As :func:`trawl.features`, on the server: the tensors are in this machine's main memory."""
        checked_device(device)
        body = self._over_history(dataset, {"where": where, "select": select, **clauses}, start, end, split)
        body.update(_panel_keys(forward, matches_only, folds, embargo, scale))
        data, _ = self._request("POST", "/v1/features", {**body, "window": whole("window", window)}, {"Accept": TYPES["arrow"]})
        return Features(_native.features_of_ipc(data))

    def study(
        self,
        dataset: str | None = None,
        where: str | None = None,
        *,
        horizons: Sequence[int] = (1, 5, 20),
        by: str | None = None,
        start: Time = None,
        end: Time = None,
        **clauses: Any,
    ) -> Study:
        """As :func:`trawl.study`, on the server."""
        body = self._over_history(dataset, {"where": where, **clauses}, start, end)
        body["horizons"] = [whole("horizons", bars) for bars in horizons]
        return Study(self._json("POST", "/v1/study", {**body, **({"by": by} if by is not None else {})}))

    def chart(
        self,
        dataset: str,
        symbol: str,
        exprs: Texts = (),
        *,
        panel: Texts = (),
        overlay: Texts = (),
        marks: str | Answer | None = None,
        bars: int = 500,
        volume: bool = True,
        size: tuple[int, int] | None = None,
        as_of: Time = None,
        adjust: str | None = None,
    ) -> Chart:
        """As :func:`trawl.chart`, on the server."""
        body: dict[str, Any] = {"dataset": dataset, "symbol": symbol, "volume": volume, "bars": whole("bars", bars)}
        for key, texts in (("exprs", exprs), ("panel", panel), ("overlay", overlay)):
            body[key] = [texts] if isinstance(texts, str) else list(texts)
        when = None if as_of is None else self._time(dataset, as_of)
        scan = None if marks is None else marked(marks)
        sides = None if size is None else list(size)
        optional = {"as_of": when, "marks": scan, "size": sides, "adjust": adjust}
        body.update({key: value for key, value in optional.items() if value is not None})

        def draw(png: bool) -> tuple[bytes, list[str]]:
            media = "image/png" if png else "image/svg+xml"
            data, response = self._request("POST", "/v1/chart", body, {"Accept": media})
            return data, json.loads(response.getheader("Trawl-Warnings") or "[]")

        return Chart(symbol, draw)

    def _over_history(
        self, dataset: str | None, clauses: dict[str, Any], start: Time, end: Time, split: Time = None
    ) -> dict[str, Any]:
        made = document(dataset, **clauses)
        name = made.keys.get("dataset")
        body: dict[str, Any] = {"document": made.keys}
        times = {"from": start, "to": end, "split": split}
        body.update({key: self._time(name, when) for key, when in times.items() if when is not None})
        return body

    def _table(self, path: str, body: dict[str, Any]) -> _native.Table:
        return _native.table_of_ipc(self._request("POST", path, body, {"Accept": TYPES["arrow"]})[0])

    # Scans --------------------------------------------------------------------------------------------------------------

    def _body(self, dataset: str | None, where: str | None, as_of: Time, clauses: dict[str, Any]) -> dict[str, Any]:
        made = document(dataset, where=where, **clauses)
        body: dict[str, Any] = {"document": made.keys}
        if as_of is not None:
            body["as_of"] = self._time(made.keys.get("dataset"), as_of)
        return body

    def _time(self, dataset: str | None, when: Time) -> str:
        """A time as the server reads it: in bars of days a midnight is its date."""
        instant, date = as_times(when) or ("", None)
        if date is None or dataset is None:
            return instant
        # Seconds, minutes and hours are no days.
        return instant if self.inspect(dataset)["timeframe"][-1] in "smh" else date

    def _submit(
        self,
        body: dict[str, Any],
        priority: str | None,
        deadline_s: float | None,
        allow_partial: bool | None,
        fresh: bool | None,
        key: str | None,
    ) -> str:
        options = {"priority": priority, "deadline_s": deadline_s, "allow_partial": allow_partial, "fresh": fresh}
        sent = {**body, **{name: value for name, value in options.items() if value}}
        # With a key the request is one scan however often it is sent.
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return str(self._json("POST", "/v1/scans", sent, headers)["scan"])

    def _answer(self, scan: str, body: dict[str, Any] | None, progress: bool | None) -> Answer:
        try:
            with Bar(progress) as bar:
                if bar.tick is not None:
                    self._show(scan, bar.tick)
                return Answer(_RemoteSource(self, scan, body))
        except KeyboardInterrupt:
            try:
                self.cancel(scan)
            except TrawlError:
                pass
            raise

    def _show(self, scan: str, tick: Callable[[int, int], None]) -> None:
        """Shows a scan's progress until it ends, or until the events break off: it runs on, and its answer is waited for."""
        try:
            for name, data in self.events(scan):
                if name == "progress":
                    tick(int(data.get("done", 0)), int(data.get("segments", 0)))
        except Unavailable:
            pass

    def _bytes(self, scan: str, format: str) -> bytes:
        if format not in TYPES:
            raise Mistake(f"format '{format}' is not known", help=", ".join(TYPES))
        path = f"/v1/scans/{_quoted(scan)}/answer?wait_s={WAIT_S}"
        while True:
            try:
                return self._request("GET", path, headers={"Accept": TYPES[format]})[0]
            except TrawlError as error:
                # It is still running.
                if error.kind != "conflict":
                    raise
                state = self.status(scan).get("state")
                if state == "cancelled":
                    raise Cancelled("the scan was cancelled", "cancelled") from None
                if state == "failed":
                    raise


class _RemoteSource:
    """An answer that a server computed."""

    def __init__(self, remote: Remote, scan: str, body: dict[str, Any] | None) -> None:
        self._remote = remote
        self._scan = scan
        self._body = body
        self._json = remote._bytes(scan, "json")

    def table(self) -> _native.Table:
        return _native.table_of_ipc(self._remote._bytes(self._scan, "arrow"))

    def bytes(self, format: str) -> bytes:
        if format == "json":
            return self._json
        data = self._remote._bytes(self._scan, format)
        # Servers send streams: the file has the same batches and an index.
        return _native.file_of_ipc(data) if format == "arrow" and not data.startswith(b"ARROW1") else data

    def about(self) -> dict[str, Any]:
        found = json.loads(self._json)
        found["digest"] = found.get("answer_digest", "")
        return found

    def why(self, symbols: list[str]) -> list[dict[str, Any]]:
        body = self._body
        if body is None:
            about = self.about()
            body = {"document": about["scan"], "as_of": about["identity"]["as_of"]}
        return self._remote._json("POST", "/v1/why", {**body, "symbols": symbols})


def _panel_keys(forward: Sequence[int], matches_only: bool, folds: int | None, embargo: int, scale: bool) -> dict[str, Any]:
    keys = {
        "forward": [whole("forward", bars) for bars in forward],
        "matches_only": matches_only,
        "folds": whole("folds", folds),
        "embargo": whole("embargo", embargo),
        "scale": scale,
    }
    return {key: value for key, value in keys.items() if value is not None}


def _error(response: http.client.HTTPResponse, data: bytes) -> TrawlError:
    body: dict[str, Any]
    try:
        body = json.loads(data)["error"]
    except (ValueError, KeyError, TypeError):
        kind = "unavailable" if response.status in (429, 502, 503) else "internal"
        body = {"kind": kind, "message": f"the server answered {response.status} {response.reason}"}
    after = response.getheader("Retry-After")
    if after is not None and body.get("retry_after_s") is None and after.isdigit():
        body["retry_after_s"] = float(after)
    return of_body(body)


def _address(url: str) -> urllib.parse.SplitResult:
    """The parts of a server's address.

    Raises :class:`Mistake` for anything else. Neither a name nor a password in it is ever shown.
    """
    try:
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and parts.username is None:
            return parts
    except ValueError:
        pass
    help = "such as http://127.0.0.1:7410; a token is given as token_file='FILE'"
    raise Mistake(f"'{url.rsplit('@', 1)[-1]}' is no address of a server", help=help)


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # A name such as 127.example.org can be that of any machine.
        return host == "localhost"


def connect(url: str, **how: Any) -> Remote:
    """A server at ``url``: ``trawl serve`` or a coordinator.

    ``token`` or ``token_file`` is the bearer token, ``ca`` the file of authorities, ``certificate`` a pair of files of the client's
    certificate and key, ``timeout_s`` how long a request may be silent (90 s, and an hour where a whole history is computed). Methods are those of this module, with names of datasets of the
    server.
    """
    return Remote(url, **how)


class AsyncRemote:
    """The same for asyncio: every method of :class:`Remote` as a coroutine, each run on a thread of asyncio's pool."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._remote, name)
        if not callable(function) or name.startswith("_"):
            raise AttributeError(name)

        @functools.wraps(function)
        async def called(*arguments: Any, **named: Any) -> Any:
            # A bar of progress is drawn by one thread alone.
            if name in ("scan", "sweep", "answer"):
                named.setdefault("progress", False)
            return await asyncio.to_thread(function, *arguments, **named)

        return called

    async def events(self, scan: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Events of a scan as they come, as those of :class:`Remote`."""
        stream, end = self._remote.events(scan), object()
        try:
            while (event := await asyncio.to_thread(next, stream, end)) is not end:
                yield cast("tuple[str, dict[str, Any]]", event)
        finally:
            # The thread of a task that was cancelled may still wait for an event.
            with contextlib.suppress(ValueError):
                stream.close()

    async def __aenter__(self) -> AsyncRemote:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def __repr__(self) -> str:
        return f"<Async{repr(self._remote)[1:]}"


def connect_async(url: str, **how: Any) -> AsyncRemote:
    """As :func:`connect`, for asyncio: ``answer = await trawl.connect_async(url).scan('us5', where=...)``.

    Requests run on threads: a task that is cancelled stops waiting, its request ends by itself.
    """
    return AsyncRemote(Remote(url, **how))
