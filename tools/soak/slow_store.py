#!/usr/bin/env python3
"""Passes HTTP requests on to a server of S3, slowly: each one waits, all of them share a bandwidth, and at times each gets 503,
or some do, or some answers are cut off, or nobody answers.

    slow_store.py --listen PORT --control PORT --to PORT

A line of JSON on the control port changes the settings, such as {"delay_s": 0.5, "bytes_per_s": 2e7, "refuse": true}; the
reply is a line with the settings and the counters. "refuse_every" and "cut_every" are for every so many requests, 0 for none; of so
many next conditional puts as "lose_puts" says the answer is lost, whatever it is; with "away" connections are closed without an
answer. Requests need a Content-Length; each has a connection of its own to the server.
"""

import argparse
import asyncio
import contextlib
import json
import socket

PIECE_BYTES = 64 * 1024
CUT_BYTES_MIN = 2048  # an answer with less is a head and little else
HEAD_BYTES_MAX = 64 * 1024
REFUSAL = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
WITHOUT_BODY = (b"204", b"304")


class SlowStore:
    """What is between the coordinators and the store."""

    def __init__(self, to):
        self.to = to
        self.settings = {"delay_s": 0.0, "bytes_per_s": 1e9, "refuse": False, "refuse_every": 0, "cut_every": 0}
        self.settings |= {"lose_puts": 0, "away": False}
        counters = ("requests", "refused", "cut", "lost_puts", "dropped", "at_once", "bytes_in", "bytes_out")
        self.counters = dict.fromkeys(counters, 0)
        self.free = 0.0  # when what was taken of the bandwidth has passed

    async def bandwidth(self, count):
        """Waits until so many bytes may pass; in the order of arrival."""
        now = asyncio.get_running_loop().time()
        self.free = max(now, self.free) + count / self.settings["bytes_per_s"]
        await asyncio.sleep(self.free - now)

    async def client(self, reader, writer):
        """The requests of one connection, one after the other."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.counters["requests"] += 1
                self.counters["at_once"] += 1
                try:
                    await self.request(head, reader, writer)
                finally:
                    self.counters["at_once"] -= 1
        writer.close()

    async def request(self, head, reader, writer):
        body = bytearray()
        length = int(header(head, b"content-length") or 0)
        while len(body) < length:
            piece = await reader.readexactly(min(PIECE_BYTES, length - len(body)))
            await self.bandwidth(len(piece))
            body += piece
        self.counters["bytes_in"] += length
        await asyncio.sleep(self.settings["delay_s"])
        if self.settings["away"]:
            self.counters["dropped"] += 1
            raise ConnectionResetError
        if self.settings["refuse"] or self.every("refuse_every"):
            self.counters["refused"] += 1
            answer = b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % len(REFUSAL)
            answer += b"" if head.startswith(b"HEAD ") else REFUSAL
        else:
            answer = await self.passed_on(head, body)
            if self.settings["lose_puts"] > 0 and head.startswith(b"PUT ") and header(head, b"if-none-match"):
                self.settings["lose_puts"] -= 1
                self.counters["lost_puts"] += 1
                raise ConnectionResetError
        cut = len(answer) > CUT_BYTES_MIN and self.every("cut_every")
        if cut:
            answer = answer[: len(answer) // 2]
        for at in range(0, len(answer), PIECE_BYTES):
            piece = answer[at : at + PIECE_BYTES]
            await self.bandwidth(len(piece))
            writer.write(piece)
            await writer.drain()
        self.counters["bytes_out"] += len(answer)
        if cut:
            self.counters["cut"] += 1
            raise ConnectionResetError

    def every(self, setting):
        """Whether a fault that happens every so many requests happens to this one."""
        count = self.settings[setting]
        return count > 0 and self.counters["requests"] % count == 0

    async def passed_on(self, head, body):
        """The server's answer, as it is."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.to)
        try:
            # No "Connection: close": MinIO then refuses a conditional put without reading its content, and closes, which resets the
            # connection before the answer has been read from it.
            writer.write(without_connection(head))
            writer.write(body)
            await writer.drain()
            answer = await reader.readuntil(b"\r\n\r\n")
            length, lines = header(answer, b"content-length"), without_connection(answer)
            if head.startswith(b"HEAD ") or answer.split(b" ", 2)[1] in WITHOUT_BODY:
                return lines
            if length is not None:
                return lines + await reader.readexactly(int(length))
            if header(answer, b"transfer-encoding") is None:
                content = await reader.read(-1)
                return lines[:-2] + b"Content-Length: %d\r\n\r\n" % len(content) + content
            chunks, last = bytearray(), False
            while not last:
                size = await reader.readuntil(b"\r\n")
                length = int(size.split(b";")[0], 16)
                chunks += size + await reader.readexactly(length + len(b"\r\n"))
                last = length == 0
            return lines + chunks
        finally:
            writer.close()

    async def control(self, reader, writer):
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                self.settings |= json.loads(line)
                writer.write(json.dumps(self.settings | self.counters).encode() + b"\n")
                await writer.drain()
        writer.close()


def header(head, name):
    """The value of a header; None without it."""
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return None


def without_connection(head):
    """The head without what it says of the connection, which is not the client's."""
    lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith((b"connection:", b"keep-alive:"))]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def ask(port, settings):
    """Changes settings of a running one; its settings and counters."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(json.dumps(settings).encode() + b"\n")
        return json.loads(connection.makefile().readline())


async def serve(arguments):
    store = SlowStore(arguments.to)
    limit = max(HEAD_BYTES_MAX, PIECE_BYTES)
    first = await asyncio.start_server(store.client, "127.0.0.1", arguments.listen, limit=limit, backlog=1024)
    second = await asyncio.start_server(store.control, "127.0.0.1", arguments.control)
    async with first, second:
        await asyncio.gather(first.serve_forever(), second.serve_forever())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("listen", "control", "to"):
        parser.add_argument(f"--{name}", type=int, required=True, metavar="PORT")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
