"""Requests to a server by HTTP/1.1, with Python's standard library alone: addresses, tokens, certificates, tries, errors.

A connection is made for each request, so that an object may be used by several threads. What is asked for is in ``remote``.
"""

from __future__ import annotations

import functools
import http.client
import ipaddress
import json
import os
import random
import ssl
import time
import urllib.parse
from typing import Any

from . import _native
from .errors import Mistake, TrawlError, Unavailable, of_body

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


#: OpenSSL's codes for a certificate of another host or address.
_OTHER_NAME = (62, 64)
#: How the certificate of a coordinator names it.
_COORDINATOR = "trawl://coordinator/"


class _CoordinatorConnection(http.client.HTTPSConnection):
    """A connection to whoever has a coordinator's certificate of the given authority, by whatever name it was reached."""

    def connect(self) -> None:
        super().connect()
        certificate = self.sock.getpeercert() or {}
        names = [str(name[1]) for name in certificate.get("subjectAltName", ()) if isinstance(name, tuple) and name[0] == "URI"]
        if not any(name.startswith(_COORDINATOR) for name in names):
            self.close()
            raise ssl.SSLError(f"the certificate of {self.host} names neither this host nor a coordinator")


class Http:
    """Requests to one server, over a connection each."""

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
            token = _token_in(token_file)
        if token is not None and parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
            raise Mistake("a token would be sent as plain text", help="use https://, or a server on this machine")
        self._how = {"token_file": token_file, "ca": ca, "certificate": certificate, "timeout_s": timeout_s}
        self._has_text_token = token is not None and token_file is None
        self._url = url
        self._parts = parts
        self._token = token
        self._timeout_s = timeout_s
        self._tls: ssl.SSLContext | None = None
        self._tls_by_role: ssl.SSLContext | None = None
        #: Whether the server's certificate names its role and not the host.
        self._is_by_role = False
        if parts.scheme == "https":
            self._tls = _tls(ca, certificate)
            if ca is not None:
                # Certificates of a cluster's own authority name roles, and often no host.
                self._tls_by_role = _tls(ca, certificate)
                self._tls_by_role.check_hostname = False

    def __repr__(self) -> str:
        return f"<Remote {self._parts.scheme}://{self._parts.netloc}>"

    def _is_picklable(self) -> bool:
        return not self._has_text_token

    def __reduce__(self) -> Any:
        """For another process, which reads the files of token and certificates itself."""
        if not self._is_picklable():
            raise Mistake("a connection with a token as text is not pickled: the token would be in the bytes", help="give it as token_file='FILE'")
        return (functools.partial(type(self), self._url, **self._how), ())

    # Requests ----------------------------------------------------------------------------------------------------------

    def _connection(self, path: str) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        usual = HISTORY_TIMEOUT_S if path in HISTORY_PATHS else TIMEOUT_S
        timeout_s = usual if self._timeout_s is None else self._timeout_s
        if self._tls_by_role is not None and self._is_by_role:
            return _CoordinatorConnection(host, port, timeout=timeout_s, context=self._tls_by_role)
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
            if getattr(error, "verify_code", 0) in _OTHER_NAME and self._tls_by_role is not None and not self._is_by_role:
                # Nothing was sent. The certificate may be a coordinator's, as the command line accepts it.
                self._is_by_role = True
                return self._send(method, path, body, headers)
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


def _token_in(file: str | os.PathLike[str]) -> str:
    try:
        with open(file, encoding="utf-8") as opened:
            return opened.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Mistake(f"token_file: cannot read '{os.fspath(file)}': {why}", help="the file that 'trawl tokens' wrote") from error


def _tls(ca: str | os.PathLike[str] | None, certificate: tuple[str, str] | None) -> ssl.SSLContext:
    """What a connection checks, and what it shows.

    Raises :class:`Mistake` for files that are none, or do not belong together.
    """
    try:
        context = ssl.create_default_context(cafile=os.fspath(ca) if ca is not None else None)
    except OSError as error:
        help = "a file of certificates in PEM, such as ca.pem of 'trawl certs dev'"
        raise Mistake(f"ca: cannot read '{os.fspath(ca or '')}': {error.strerror or error}", help=help) from error
    if certificate is None:
        return context
    if isinstance(certificate, (str, os.PathLike)) or len(certificate) != 2:
        help = "certificate=('client.pem', 'client.key')"
        raise Mistake("certificate: the file of the certificate and that of its key are expected", help=help)
    try:
        context.load_cert_chain(*certificate)
    except OSError as error:
        help = "a certificate and its key in PEM, such as client.pem and client.key of 'trawl certs dev'"
        named = f"'{certificate[0]}' with '{certificate[1]}'"
        raise Mistake(f"certificate: cannot use {named}: {error.strerror or error}", help=help) from error
    return context


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
