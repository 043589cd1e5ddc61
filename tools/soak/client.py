"""A second client of coordinators, made from the .proto files: submits scans at a rate, follows each, checks what it gets."""

import asyncio
import collections
import importlib
import pathlib
import random
import struct
import sys
import time
import zlib

import grpc

from documents import Documents

# Shares of the kinds of scans, in percent: `cut` is cancelled, `long` has its document in the result store.
KINDS = {"plain": 42, "cross": 15, "detached": 15, "ephemeral": 15, "long": 8, "cut": 5}
KEYED = 0.75  # share of recorded scans with an idempotency key, as the command line always sends one
PROTOCOL_VERSION = 3  # protocol/wire/src/limits.rs
MESSAGE_BYTES_MAX = 256 * 1024 * 1024
CALL_TIMEOUT_S = 60.0
RECONNECT_S = 90.0  # how long a scan is followed without an event before it counts as lost
RETRY_S = (0.1, 2.0)
# What a coordinator answers while nobody leads or a caller has to wait.
PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED,
           grpc.StatusCode.ABORTED, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED)


def generate(folder, protos):
    """Generates the modules trawl_pb2 and trawl_pb2_grpc into `folder` and imports them."""
    from grpc_tools import protoc

    folder.mkdir(exist_ok=True)
    if protoc.main(["protoc", f"-I{protos}", f"--python_out={folder}", f"--grpc_python_out={folder}", f"{protos}/trawl.proto"]):
        sys.exit(f"{protos}/trawl.proto: protoc failed")
    sys.path.insert(0, str(folder))
    return importlib.import_module("trawl_pb2"), importlib.import_module("trawl_pb2_grpc")


class Scan:
    """One scan from its submission to its end, over as many streams as it takes."""

    __slots__ = ("kind", "document", "key", "due", "accepted", "ended", "id", "identity", "generation", "segments", "failed",
                 "digest", "outcome", "streams", "why")

    def __init__(self, kind, document, key, due):
        self.kind, self.document, self.key, self.due = kind, document, key, due
        self.accepted = self.ended = self.id = self.identity = self.digest = self.outcome = self.why = None
        self.generation, self.segments, self.failed, self.streams = 0, {}, 0, 0

    @property
    def recorded(self):
        return self.kind != "ephemeral"


class Load:
    """Open loop: a scan is submitted when it is due, whether or not earlier ones have ended."""

    def __init__(self, addresses, dataset, rate, seed, folder, protos):
        self.pb, self.rpc = generate(folder, protos)
        self.addresses, self.rate = addresses, rate
        self.draws = random.Random(seed)
        self.documents = Documents(dataset, self.draws)
        self.scans, self.open, self.late, self.refused = [], set(), [], collections.Counter()
        self.digests, self.segment_digests, self.identities = {}, {}, {}
        self.problems, self.reconnects, self.checked_bytes = [], 0, 0
        self.over = False

    def connect(self):
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), ("grpc.enable_retries", 0),
                   ("grpc.max_reconnect_backoff_ms", 1000), ("grpc.initial_reconnect_backoff_ms", 100)]
        self.channels = [grpc.aio.insecure_channel(address, options) for address in self.addresses]
        self.stubs = [self.rpc.CoordinatorStub(channel) for channel in self.channels]

    def stub(self):
        return self.draws.choice(self.stubs)

    def problem(self, text):
        if len(self.problems) < 1000:
            self.problems.append(text)

    async def run(self):
        """Submits until `over`; a scan is late by how much after its due time the request leaves."""
        self.connect()
        begin, number, replaced = time.monotonic(), 0, 0.0
        while not self.over:
            due = begin + number / self.rate
            if (wait := due - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            self.late.append(time.monotonic() - due)
            kind = self.draws.choices(list(KINDS), list(KINDS.values()))[0]
            self.begin(kind, self.documents.draw(kind if kind in ("cross", "long") else "plain"), due)
            number += 1
            if number / self.rate - replaced >= 1.0:
                self.documents.replace(number / self.rate - replaced)
                replaced = number / self.rate

    def begin(self, kind, document, due):
        key = f"soak-{self.draws.getrandbits(64):x}" if kind != "ephemeral" and self.draws.random() < KEYED else ""
        scan = Scan(kind, document, key, due)
        self.scans.append(scan)
        task = asyncio.create_task(self.whole(scan))
        self.open.add(task)
        task.add_done_callback(self.open.discard)

    def burst(self, count):
        """Scans that take long, all at once."""
        scans = len(self.scans)
        for _ in range(count):
            self.begin("plain", self.documents.sweep(), time.monotonic())
        return self.scans[scans:]

    async def whole(self, scan):
        try:
            await self.follow(scan)
            if scan.kind == "detached" and scan.outcome is None:
                await asyncio.sleep(self.draws.uniform(1, 20))
                await self.follow(scan)
            if scan.recorded and scan.id:
                await self.compare(scan)
        except Exception as error:  # a task's error would be lost
            scan.outcome, scan.why = "error", repr(error)
            self.problem(f"{scan.kind} scan {scan.id}: {error!r}")
        scan.ended = time.monotonic()
        scan.segments = len(scan.segments)

    def request(self, scan):
        return self.pb.ScanRequest(protocol_version=PROTOCOL_VERSION, document_json=scan.document, fresh=True, columns=True,
                                   ephemeral=not scan.recorded,
                                   idempotency_key=scan.key, detached=scan.kind == "detached")

    async def follow(self, scan):
        """Streams until the scan has ended; an ephemeral one has one stream, and a detached one ends its first by design."""
        heard, wait = time.monotonic(), RETRY_S[0]
        while True:
            if scan.id:
                watch = self.pb.WatchRequest(protocol_version=PROTOCOL_VERSION, columns=True, scan_id=scan.id, generation=scan.generation,
                                             have=sorted(scan.segments))
                call = self.stub().Watch(watch)
            else:
                call = self.stub().Scan(self.request(scan))
            scan.streams += 1
            try:
                async for event in call:
                    heard, wait = time.monotonic(), RETRY_S[0]
                    self.take(scan, event)
                    if scan.outcome:
                        call.cancel()
                        return
                    if scan.kind == "cut" and scan.streams == 1 and event.WhichOneof("event") == "accepted":
                        await self.stub().Cancel(self.pb.CancelRequest(scan_id=scan.id), timeout=CALL_TIMEOUT_S)
                if scan.kind == "detached" and scan.streams == 1 and scan.id:
                    return
                why = "the stream ended without a summary"
            except grpc.aio.AioRpcError as error:
                why = f"{error.code().name}: {error.details()}"
                if error.code() not in PASSING:
                    scan.outcome, scan.why = "refused", why
                    self.problem(f"{scan.kind} scan {scan.id}: {why}")
                    return
                if not scan.id:
                    self.refused[why.split(":")[0]] += 1
            if scan.id and not scan.recorded:
                scan.outcome, scan.why = "cut off", why
                return
            if time.monotonic() - heard > RECONNECT_S:
                scan.outcome, scan.why = "lost", why
                self.problem(f"{scan.kind} scan {scan.id} has no end: {why}")
                return
            self.reconnects += 1
            await asyncio.sleep(wait * self.draws.uniform(0.5, 1))
            wait = min(2 * wait, RETRY_S[1])

    def take(self, scan, event):
        kind = event.WhichOneof("event")
        body = getattr(event, kind)
        if kind == "accepted":
            if scan.id not in (None, body.scan_id):
                self.problem(f"scan {scan.id} became {body.scan_id}")
            if scan.generation != body.generation:
                scan.segments = {}
            scan.id, scan.generation, scan.identity = body.scan_id, body.generation, body.identity_json
            scan.accepted = scan.accepted or time.monotonic()
        elif kind == "segment_done":
            envelope = body.result
            head = struct.pack("<IQQ", envelope.version, envelope.schema, envelope.length)
            if len(envelope.payload) != envelope.length or zlib.crc32(envelope.payload, zlib.crc32(head)) != envelope.checksum:
                self.problem(f"scan {scan.id}: the envelope of segment {body.segment} is damaged")
            self.checked_bytes += len(envelope.payload)
            scan.segments[body.segment] = body.digest
        elif kind == "segment_failed":
            scan.failed += 1
            scan.segments[body.segment] = b""
        elif kind == "summary":
            scan.outcome, scan.digest = "done", body.answer_digest
            self.equal(scan)
        else:
            cancelled = body.failure.kind == self.pb.ERROR_KIND_CANCELLED
            scan.outcome = "cancelled" if cancelled and scan.kind == "cut" else "failed"
            scan.why = body.failure.message
            if scan.outcome == "failed":
                self.problem(f"{scan.kind} scan {scan.id} failed: {scan.why}")

    def equal(self, scan):
        """Equal documents on one snapshot have equal identities, segments and answers."""
        if self.identities.setdefault(scan.document, scan.identity) != scan.identity:
            self.problem(f"scan {scan.id}: another identity than an equal scan: {scan.identity}")
        if self.digests.setdefault(scan.document, scan.digest) != scan.digest:
            self.problem(f"scan {scan.id}: digest {scan.digest}, an equal scan had {self.digests[scan.document]}")
        if self.segment_digests.setdefault(scan.document, scan.segments) != scan.segments:
            self.problem(f"scan {scan.id}: other segments than an equal scan")
        if scan.failed:
            self.problem(f"scan {scan.id}: {scan.failed} segments failed")

    async def compare(self, scan):
        """What a coordinator says of a scan that has ended."""
        info = await self.asked("GetScan", self.pb.GetScanRequest(scan_id=scan.id))
        state = self.pb.ScanState.Name(info.state).removeprefix("SCAN_STATE_").lower()
        if state != scan.outcome or (scan.digest and info.answer_digest != scan.digest):
            self.problem(f"scan {scan.id} ended as {scan.outcome} {scan.digest}, and is listed as {state} {info.answer_digest}")

    async def asked(self, name, request):
        """A call that is repeated while nobody leads."""
        until = time.monotonic() + RECONNECT_S
        while True:
            try:
                return await getattr(self.stub(), name)(request, timeout=CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                if error.code() not in PASSING or time.monotonic() > until:
                    raise
            await asyncio.sleep(RETRY_S[0])

    async def drained(self, seconds):
        """Waits for the end of every scan; how many have none."""
        if self.open:
            await asyncio.wait(self.open, timeout=seconds)
        return len(self.open)

    async def active(self):
        return [scan.scan_id for scan in (await self.asked("ListScans", self.pb.ListScansRequest(active=True))).scans]

    async def close(self):
        for channel in self.channels:
            await channel.close()


PROTOS = pathlib.Path(__file__).resolve().parents[2] / "protocol/wire/proto"
