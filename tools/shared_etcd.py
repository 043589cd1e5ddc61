#!/usr/bin/env python3
"""Runs one etcd on free loopback ports in a temporary directory for as long as standard input stays open.

    shared_etcd.py PATH_OF_ETCD

Prints one line, the client URL, once etcd answers that it is healthy. The parent process holds the other end of
standard input: when it ends, however, the pipe closes, etcd stops and its directory is deleted.
"""

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ATTEMPTS_MAX = 5  # a port that was free may be taken before etcd binds it
HEALTHY_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.05


def free_ports(count):
    """`count` loopback ports that are free at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def healthy(url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url + "/health", timeout=1.0) as answer:
            return b"true" in answer.read()
    except OSError:
        return False


def start(etcd, folder):
    """A healthy etcd and its client URL, or None and None when it ended (a port was taken)."""
    client_port, peer_port = free_ports(2)
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    with open(f"{folder}/log", "wb") as log:
        process = subprocess.Popen(
            [etcd, "--name=shared", f"--data-dir={folder}/data", f"--listen-client-urls={client}",
             f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
             f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=shared={peer}", "--log-level=error"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    deadline = time.monotonic() + HEALTHY_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if healthy(client):
            return process, client
        time.sleep(POLL_INTERVAL_S)
    process.kill()
    process.wait()
    return None, None


def main():
    # An interrupt at the terminal reaches this process too; the end of the pipe is the signal to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder = tempfile.mkdtemp(prefix="trawl-etcd-")
    process = None
    try:
        for _ in range(ATTEMPTS_MAX):
            process, url = start(sys.argv[1], folder)
            if process:
                break
        else:
            sys.stderr.write(open(f"{folder}/log", errors="replace").read())
            sys.exit("shared_etcd.py: etcd did not become healthy")
        print(url, flush=True)
        sys.stdin.read()
    finally:
        if process:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
