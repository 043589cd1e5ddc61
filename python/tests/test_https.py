"""``tw.connect`` over TLS: an authority of one's own, certificates of clients, names, and everything that must be refused."""

import http.server
import os
import ssl
import subprocess
import threading

import pytest

import trawl as tw
from conftest import AS_OF, GOLDEN_CROSS
from test_remote import TOKEN, Server, cluster


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Two authorities that know nothing of each other, with certificates for servers and clients."""
    program = os.environ.get("TRAWL_BIN")
    if not program:
        pytest.skip("TRAWL_BIN makes the certificates")
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("ours", "others"):
        subprocess.run([program, "certs", "dev", "--dir", str(folder / name)], check=True, stdout=subprocess.DEVNULL)
    return folder


def pair(folder, name):
    return (str(folder / f"{name}.pem"), str(folder / f"{name}.key"))


@pytest.fixture
def secure(certificates):
    """The server of ``test_remote`` over TLS, for clients with a certificate of our authority."""
    ours = certificates / "ours"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The one of etcd names localhost and 127.0.0.1.
    context.load_cert_chain(*pair(ours, "etcd"))
    context.load_verify_locations(ours / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    Server.scans, Server.keys, Server.faults, Server.seen, Server.slow_answers, Server.cut = {}, {}, [], [], 0, 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_our_authority_and_a_certificate_of_ours(secure, certificates):
    ours = certificates / "ours"
    for host in ("127.0.0.1", "localhost"):
        there = tw.connect(f"https://{host}:{secure}", token=TOKEN, ca=ours / "etcd-ca.pem", certificate=pair(ours, "client"))
        assert there.scan("us5", where=GOLDEN_CROSS, as_of=AS_OF) == tw.scan("us5", where=GOLDEN_CROSS, as_of=AS_OF)
        assert repr(there) == f"<Remote https://{host}:{secure}>"
    # A token goes over TLS to any machine.
    assert tw.connect("https://example.org", token=TOKEN)._token == TOKEN


def test_strangers_are_refused_and_nothing_is_sent_to_them(secure, certificates):
    ours, others = certificates / "ours", certificates / "others"
    url, known = f"https://127.0.0.1:{secure}", {"ca": ours / "etcd-ca.pem", "certificate": pair(ours, "client")}
    for how in (
        {},  # authorities of this machine do not know ours
        {**known, "ca": others / "etcd-ca.pem"},
        {**known, "certificate": None},
        {**known, "certificate": pair(others, "client")},
    ):
        there = tw.connect(url, token=TOKEN, timeout_s=10, **how)
        with pytest.raises(tw.Unavailable, match="does not answer|broke off") as caught:
            there._once("GET", "/v1/version")
        assert TOKEN not in str(caught.value)
    # Plain text to a port of TLS.
    with pytest.raises(tw.Unavailable):
        tw.connect(f"http://127.0.0.1:{secure}", token=TOKEN, timeout_s=10)._once("GET", "/v1/version")
    assert Server.seen == [], "no request arrived"


def test_a_name_that_the_certificate_does_not_have_is_refused(certificates):
    ours = certificates / "ours"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # That of a worker names no machine, and is no coordinator's.
    context.load_cert_chain(*pair(ours, "worker"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        Server.seen = []
        for _ in range(2):
            there = tw.connect(f"https://127.0.0.1:{server.server_port}", token=TOKEN, ca=ours / "ca.pem")
            with pytest.raises(tw.Unavailable, match="names neither this host nor a coordinator"):
                there._once("GET", "/v1/version")
        assert Server.seen == [], "no request, and no token, was sent"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_files_that_are_none_are_mistakes(tmp_path, certificates):
    ours = certificates / "ours"
    (tmp_path / "no.pem").write_text("no certificate")
    for how in (
        {"ca": tmp_path / "missing.pem"},
        {"ca": tmp_path / "no.pem"},
        {"certificate": (str(tmp_path / "missing.pem"), str(tmp_path / "missing.key"))},
        {"certificate": (pair(ours, "client")[0], pair(ours, "worker")[1])},
        {"certificate": pair(ours, "client")[0]},
        {"token_file": tmp_path / "missing"},
    ):
        with pytest.raises(tw.Mistake) as caught:
            tw.connect("https://127.0.0.1:1", **how)
        assert caught.value.help, how


def test_a_coordinator_with_certificates(tmp_path, certificates):
    ours = certificates / "ours"

    def tls(name):
        return ("--tls-ca", ours / "ca.pem", "--tls-cert", ours / f"{name}.pem", "--tls-key", ours / f"{name}.key")

    with cluster(tmp_path, tls("coordinator"), tls("worker"), 1, address_only=True) as address:
        assert address.startswith("https://")
        there = tw.connect(address, ca=ours / "ca.pem", certificate=pair(ours, "client"))
        answer = there.scan("us5", where=GOLDEN_CROSS, as_of=AS_OF)
        assert answer == tw.scan("us5", where=GOLDEN_CROSS, as_of=AS_OF) and answer.why("IBM")["symbol"] == "IBM"
        assert there.scans()[0]["owner"] == "trawl://client/dev"
        # Its certificate names its role and no host: only an authority of one's own may say that.
        assert there._is_by_role
        with pytest.raises(tw.Unavailable):
            tw.connect(address, certificate=pair(ours, "client"), timeout_s=10)._once("GET", "/v1/version")
        # A worker's certificate is none of a user.
        with pytest.raises(tw.Denied):
            tw.connect(address, ca=ours / "ca.pem", certificate=pair(ours, "worker")).scans()
        with pytest.raises(tw.Unavailable):
            tw.connect(address, ca=ours / "ca.pem", timeout_s=10)._once("GET", "/v1/version")
