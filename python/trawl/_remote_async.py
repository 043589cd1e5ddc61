"""The same server for asyncio: each method of :class:`Remote` as a coroutine with its types."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from .remote import Remote, connect

P = ParamSpec("P")
R = TypeVar("R")


def _threaded(method: Callable[Concatenate[Remote, P], R], **usual: Any) -> Callable[Concatenate[AsyncRemote, P], Coroutine[Any, Any, R]]:
    """A method as a coroutine that runs on a thread of asyncio's pool. ``usual`` are arguments that it gets if they are not given."""

    @functools.wraps(method)
    async def called(self: AsyncRemote, *arguments: P.args, **named: P.kwargs) -> R:
        named.update({name: value for name, value in usual.items() if name not in named})
        return await asyncio.to_thread(method, self._remote, *arguments, **named)

    return called


class AsyncRemote:
    """The same for asyncio: every method of :class:`Remote` as a coroutine, each run on a thread of asyncio's pool."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    version = _threaded(Remote.version)
    datasets = _threaded(Remote.datasets)
    inspect = _threaded(Remote.inspect)
    coverage = _threaded(Remote.coverage)
    indicators = _threaded(Remote.indicators)
    indicator = _threaded(Remote.indicator)
    workers = _threaded(Remote.workers)
    # A bar of progress is drawn by one thread alone.
    scan = _threaded(Remote.scan, progress=False)
    sweep = _threaded(Remote.sweep, progress=False)
    submit = _threaded(Remote.submit)
    answer = _threaded(Remote.answer, progress=False)
    status = _threaded(Remote.status)
    scans = _threaded(Remote.scans)
    cancel = _threaded(Remote.cancel)
    report = _threaded(Remote.report)
    explain = _threaded(Remote.explain)
    near = _threaded(Remote.near)
    series = _threaded(Remote.series)
    panel = _threaded(Remote.panel)
    signals = _threaded(Remote.signals)
    features = _threaded(Remote.features)
    study = _threaded(Remote.study)
    chart = _threaded(Remote.chart)

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


def connect_async(
    url: str,
    *,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    certificate: tuple[str, str] | None = None,
    timeout_s: float | None = None,
) -> AsyncRemote:
    """As :func:`connect`, for asyncio: ``answer = await trawl.connect_async(url).scan('us5', where=...)``.

    Requests run on threads: a task that is cancelled stops waiting, its request ends by itself.
    """
    return AsyncRemote(connect(url, token=token, token_file=token_file, ca=ca, certificate=certificate, timeout_s=timeout_s))
