#!/usr/bin/env python3
"""Clients that stop: each opens a stream of a scan's events over a connection of its own, reads one event, and no more.

    stopped.py --coordinators HOST:PORT,... --scans ID,... --count 100 --generated DIR

Prints `stopped COUNT` once each has read its first event, and then waits until it is killed. A process of its own, so that
it can be stopped as a whole, and so that what its streams buffer is not the memory of the programme that measures.
"""

import argparse
import asyncio
import pathlib
import sys

import grpc

from client import MESSAGE_BYTES_MAX, PROTOCOL_VERSION, PROTOS, generate

AT_ONCE = 20  # streams that are opened at once
TRIES_MAX = 20


async def open_one(pb, rpc, address, scan, room):
    """A stream that has given its first event, with its channel."""
    options = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), ("grpc.use_local_subchannel_pool", 1),
               ("grpc.http2.bdp_probe", 0)]  # a window of 64 KiB: what is sent waits at the coordinator
    async with room:
        for _ in range(TRIES_MAX):
            channel = grpc.aio.insecure_channel(address, options)
            call = rpc.CoordinatorStub(channel).Watch(pb.WatchRequest(protocol_version=PROTOCOL_VERSION, scan_id=scan))
            try:
                event = await call.read()
                if event is not grpc.aio.EOF:
                    return channel, call
            except grpc.aio.AioRpcError as error:
                print(f"{scan}: {error.code().name}: {error.details()}", file=sys.stderr, flush=True)
            await channel.close()
            await asyncio.sleep(1)
    return None


async def stop(arguments):
    pb, rpc = generate(arguments.generated, PROTOS)
    addresses, scans, room = arguments.coordinators.split(","), arguments.scans.split(","), asyncio.Semaphore(AT_ONCE)
    pairs = [(addresses[n % len(addresses)], scans[n // len(addresses) % len(scans)]) for n in range(arguments.count)]
    opened = await asyncio.gather(*(open_one(pb, rpc, address, scan, room) for address, scan in pairs))
    print("stopped", sum(one is not None for one in opened), flush=True)
    await asyncio.Event().wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coordinators", required=True, metavar="HOST:PORT,...")
    parser.add_argument("--scans", required=True, metavar="ID,...")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--generated", type=pathlib.Path, required=True, metavar="DIR", help="for the modules made from the .proto")
    asyncio.run(stop(parser.parse_args()))


if __name__ == "__main__":
    main()
