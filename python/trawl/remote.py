"""Scans on a server: ``trawl serve``, or a coordinator. Requests are sent by ``_http``.

The interface is version 1 of ``docs/http.md``.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.parse
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from . import _frames, _native
from ._chart import Chart, Texts, dataset_of, marked
from ._document import Select, as_times, columns, document, pinned, whole
from ._http import TYPES, WAIT_S, Http, _error, _quoted
from ._progress import Bar
from ._scan import Bars, Explanation, Features, Study, Time, of_main_memory
from .answer import Answer
from .dataset import reference
from .errors import Cancelled, Mistake, TrawlError, Unavailable
from .indicators import Indicator, by_name

#: Symbols that one request asks about; the server's limit.
SYMBOLS_MAX = 64


class Remote(Http):
    """A server. Made by :func:`connect`."""

    # What one can ask ---------------------------------------------------------------------------------------------------

    def version(self) -> dict[str, Any]:
        """Version and mode of the server."""
        return self._json("GET", "/v1/version")

    def datasets(self) -> list[dict[str, Any]]:
        """The server's datasets, as ``trawl data list --json``."""
        found = self._json("GET", "/v1/datasets")
        return found.get("datasets", found) if isinstance(found, dict) else found

    def inspect(self, dataset: Bars, symbol: str | None = None) -> dict[str, Any]:
        """What a dataset has, as ``trawl data inspect --json``."""
        query = f"?symbol={_quoted(symbol)}" if symbol else ""
        return self._json("GET", f"/v1/datasets/{_quoted(_named(dataset))}{query}")

    def coverage(self, dataset: Bars) -> Any:
        """Days of a dataset with their numbers of bars."""
        return self._json("GET", f"/v1/datasets/{_quoted(_named(dataset))}/coverage")

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
        dataset: Bars = None,
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

    def sweep(self, dataset: Bars, where: str | None = None, *, over: Any, **clauses: Any) -> Answer:
        """As :func:`trawl.sweep`, on the server."""
        return self.scan(dataset, where, sweep=over, **clauses)

    def submit(self, dataset: Bars = None, where: str | None = None, *, as_of: Time = None, **how: Any) -> str:
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
        self, dataset: Bars = None, where: str | None = None, *, as_of: Time = None, **clauses: Any
    ) -> dict[str, Any]:
        """As :func:`trawl.explain`, on the server."""
        return Explanation(self._json("POST", "/v1/explain", self._body(dataset, where, as_of, clauses)))

    def near(
        self,
        dataset: Bars = None,
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
        dataset: Bars,
        symbol: str,
        exprs: Select = (),
        *,
        bars: bool = True,
        start: Time = None,
        end: Time = None,
        as_of: Time = None,
    ) -> Any:
        """Bars and expressions of one symbol along its bars, as a frame."""
        name = _named(dataset)
        body = {"dataset": name, "symbol": symbol, "exprs": columns(exprs) or [], "bars": bars}
        times = {"from": start, "to": end, "as_of": as_of}
        body.update({key: self._time(name, when) for key, when in times.items() if when is not None})
        data, _ = self._request("POST", "/v1/series", body, {"Accept": TYPES["arrow"]})
        return _frames.default(_native.table_of_ipc(data))

    def panel(
        self,
        dataset: Bars = None,
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
        dataset: Bars = None,
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
        dataset: Bars = None,
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
        if device != "cpu":
            raise of_main_memory(device)
        body = self._over_history(dataset, {"where": where, "select": select, **clauses}, start, end, split)
        body.update(_panel_keys(forward, matches_only, folds, embargo, scale))
        data, _ = self._request("POST", "/v1/features", {**body, "window": whole("window", window)}, {"Accept": TYPES["arrow"]})
        return Features(_native.features_of_ipc(data))

    def study(
        self,
        dataset: Bars = None,
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
        dataset: Bars,
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
        name = dataset_of(_named(dataset), marks)
        body: dict[str, Any] = {"dataset": name, "symbol": symbol, "volume": volume, "bars": whole("bars", bars)}
        for key, texts in (("exprs", exprs), ("panel", panel), ("overlay", overlay)):
            body[key] = [texts] if isinstance(texts, str) else list(texts)
        when = None if as_of is None else self._time(name, as_of)
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
        self, dataset: Bars, clauses: dict[str, Any], start: Time, end: Time, split: Time = None
    ) -> dict[str, Any]:
        made = document(reference(dataset), **clauses)
        name = made.keys.get("dataset")
        body: dict[str, Any] = {"document": made.keys}
        times = {"from": start, "to": end, "split": split}
        body.update({key: self._time(name, when) for key, when in times.items() if when is not None})
        return body

    def _table(self, path: str, body: dict[str, Any]) -> _native.Table:
        return _native.table_of_ipc(self._request("POST", path, body, {"Accept": TYPES["arrow"]})[0])

    # Scans --------------------------------------------------------------------------------------------------------------

    def _body(self, dataset: Bars, where: str | None, as_of: Time, clauses: dict[str, Any]) -> dict[str, Any]:
        made = document(reference(dataset), where=where, **clauses)
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

    def __init__(self, remote: Remote | None, scan: str, body: dict[str, Any] | None, kept: dict[str, bytes] | None = None) -> None:
        self._remote = remote
        self._scan = scan
        #: What was asked for, for servers that do not say what they scanned.
        self._document = body["document"] if body is not None else None
        #: Bytes by format that are not fetched again.
        self._kept = {} if kept is None else kept
        if "json" not in self._kept:
            self._kept["json"] = self._there()._bytes(scan, "json")

    def _there(self) -> Remote:
        if self._remote is None:
            help = "connect with token_file='FILE', or ask where the answer was made"
            raise Mistake("this answer was pickled without its connection, since a token is never pickled", help=help)
        return self._remote

    def table(self) -> _native.Table:
        return _native.table_of_ipc(self._kept.get("arrow") or self._there()._bytes(self._scan, "arrow"))

    def bytes(self, format: str) -> bytes:
        data = self._kept.get(format) or self._there()._bytes(self._scan, format)
        # Servers send streams: the file has the same batches and an index.
        return _native.file_of_ipc(data) if format == "arrow" and not data.startswith(b"ARROW1") else data

    def about(self) -> dict[str, Any]:
        found = json.loads(self._kept["json"])
        found["digest"] = found.get("answer_digest", "")
        return found

    def _asked(self) -> dict[str, Any]:
        about = self.about()
        scanned = about.get("scan") or self._document
        if scanned is None:
            raise Mistake("this server does not say what it scanned", help="submit the scan by this object, or use a newer server")
        # Bars that came since are none of this answer.
        return pinned(scanned, about["identity"])

    def why(self, symbols: list[str]) -> list[dict[str, Any]]:
        asked, found = self._asked(), []
        for begin in range(0, len(symbols), SYMBOLS_MAX):
            body = {**asked, "symbols": symbols[begin : begin + SYMBOLS_MAX]}
            found += self._there()._json("POST", "/v1/why", body)
        return found

    def near(self, most: int) -> list[dict[str, Any]]:
        return self._there()._json("POST", "/v1/near", {**self._asked(), "most": most})

    def __reduce__(self) -> Any:
        kept = {"json": self._kept["json"], "arrow": self.bytes("arrow")}
        body = None if self._document is None else {"document": self._document}
        remote = self._remote if self._remote is not None and self._remote._is_picklable() else None
        return (_RemoteSource, (remote, self._scan, body, kept))


def _named(dataset: Bars) -> str:
    name = reference(dataset)
    if name is None:
        raise Mistake("which dataset?", help="there.datasets() lists them")
    return name


def _panel_keys(forward: Sequence[int], matches_only: bool, folds: int | None, embargo: int, scale: bool) -> dict[str, Any]:
    keys = {
        "forward": [whole("forward", bars) for bars in forward],
        "matches_only": matches_only,
        "folds": whole("folds", folds),
        "embargo": whole("embargo", embargo),
        "scale": scale,
    }
    return {key: value for key, value in keys.items() if value is not None}


def connect(
    url: str,
    *,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    certificate: tuple[str, str] | None = None,
    timeout_s: float | None = None,
) -> Remote:
    """A server at ``url``: ``trawl serve`` or a coordinator.

    ``token`` or ``token_file`` is the bearer token, ``ca`` the file of authorities, ``certificate`` a pair of files of the client's
    certificate and key, ``timeout_s`` how long a request may be silent (90 s, and an hour where a whole history is computed). Methods
    are those of this module, with names of datasets of the server, or a :class:`Dataset` of a data root that the server reads too.
    """
    return Remote(url, token=token, token_file=token_file, ca=ca, certificate=certificate, timeout_s=timeout_s)
