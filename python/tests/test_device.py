"""``features(device='cuda')`` on the computing driver for tests (``testing/cuda``): the tensors are on its device, have the bits of those
in main memory, and were never copied from there.

The folder of the driver's libraries is in ``TRAWL_TEST_DRIVER_FOLDER``; without it these tests are skipped. Each test is a process of its
own: what a process finds of the driver is decided once.
"""

import os
import subprocess
import sys
import textwrap

import pytest

import trawl as tw

#: What the programs share: the driver's functions, and a consumer of capsules as DLPack's header describes them.
SHARED = '''
import ctypes, gc, os, sys
import trawl as tw

driver = ctypes.CDLL(os.path.join(os.environ["TRAWL_CUDA_LIBRARIES"], "libcuda.so"))
NAMES = ["allocations", "launches", "modules", "trims", "copies_in", "bytes_in", "copies_out", "bytes_out", "used_bytes", "most_bytes",
         "live_allocations", "live_events", "bytes_moved", "kernels", "graph_launches", "live_graphs", "gathers", "pinned_bytes"]
class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in NAMES]
def counts(device=0):
    read = Counts()
    driver.trawl_test_counts(device, ctypes.byref(read))
    return read
driver.trawl_test_stream.restype = ctypes.c_void_p
driver.trawl_test_block.argtypes = driver.trawl_test_run.argtypes = driver.trawl_test_destroy.argtypes = [ctypes.c_int, ctypes.c_void_p]
driver.trawl_test_run.restype = ctypes.c_bool
driver.trawl_test_read.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64]
driver.trawl_test_read.restype = ctypes.c_bool

class Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("id", ctypes.c_int32)]
class Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]
class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("device", Device), ("axes", ctypes.c_int32), ("type", Type),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]
Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]
class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", Deleter),
                ("flags", ctypes.c_uint64), ("tensor", DLTensor)]
api = ctypes.pythonapi
api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
NAMES_KEPT = {b"dltensor": (Managed, b"used_dltensor"), b"dltensor_versioned": (Versioned, b"used_dltensor_versioned")}
class Taken:
    """What a library has taken; ``end`` is what it calls when it is done."""
    def __init__(self, capsule):
        self.name = api.PyCapsule_GetName(capsule)
        kind, used = NAMES_KEPT[self.name]
        self.at = api.PyCapsule_GetPointer(capsule, self.name)
        api.PyCapsule_SetName(capsule, used)
        self.managed = kind.from_address(self.at)
        tensor = self.tensor = self.managed.tensor
        self.place = (tensor.device.kind, tensor.device.id)
        self.shape = [tensor.shape[axis] for axis in range(tensor.axes)]
        self.address, self.bytes = tensor.data, tensor.type.bits // 8
        for length in self.shape:
            self.bytes *= length
        assert not tensor.strides and tensor.byte_offset == 0 and tensor.type.lanes == 1
    def read(self, device=0):
        to = ctypes.create_string_buffer(max(self.bytes, 1))
        return to.raw[: self.bytes] if driver.trawl_test_read(device, self.address, to, self.bytes) else None
    def end(self):
        self.managed.deleter(self.at)
SELECT = {"rsi": "rsi(14)", "up": "close > sma(20)", "close": "close", "strength": "xs_rank(roc(5))"}
ASKED = {"window": 7, "where": "close > sma(50)", "start": "2012-06-01", "forward": [1, 5], "progress": False}
def of(device, **named):
    return tw.features("us5", SELECT, device=device, **{**ASKED, **named})
def host_bytes(tensor):
    interface = tensor.__array_interface__
    size = int(interface["typestr"][2:])
    for length in interface["shape"]:
        size *= length
    return ctypes.string_at(interface["data"][0], size) if size else b""
'''


def run(program, settings=""):
    folder = os.environ.get("TRAWL_TEST_DRIVER_FOLDER")
    if not folder:
        pytest.skip("TRAWL_TEST_DRIVER_FOLDER names no driver for tests")
    environment = {**os.environ, "TRAWL_CUDA_LIBRARIES": folder, "TRAWL_TEST_DRIVER": settings}
    text = SHARED + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return done


def test_the_bits_are_those_of_main_memory_and_never_left_the_device():
    run(
        """
        for named in ({}, {"scale": True, "split": "2012-12-03", "embargo": 2}, {"precision": "f32"}, {"matches_only": True}):
            here = of("cpu", **named)
            before = counts()
            there = of("cuda", **named)
            after = counts()
            assert len(there) == len(here) > 100 and there.names == here.names and there.labels == here.labels
            assert there.scaler == here.scaler and there.index.equals(here.index)
            taken = [Taken(tensor.__dlpack__()) for tensor in (there.x, there.mask, there.y)]
            # What left the device decides about rows, or is made cross-sections of: the other three features add nothing to it.
            left = after.bytes_out - before.bytes_out
            tw.features("us5", {"strength": SELECT["strength"]}, device="cuda", **{**ASKED, **named})
            assert counts().bytes_out - after.bytes_out == left, (left, sum(one.bytes for one in taken))
            after = counts()
            here_bytes = [host_bytes(tensor) for tensor in (here.x, here.mask, here.y)]
            assert [one.read() for one in taken] == here_bytes
            assert [one.shape for one in taken] == [list(tensor.shape) for tensor in (here.x, here.mask, here.y)]
            assert all(one.place == (2, 0) for one in taken)
            # Handing out and taking copied nothing.
            assert counts().bytes_out == after.bytes_out and counts().bytes_in == after.bytes_in
            [one.end() for one in taken]
        assert there.x.device == "cuda:0" and there.x.__dlpack_device__() == (2, 0) and "cuda:0" in repr(there.x)
        assert here.x.device == "cpu"
        """,
        "when=random seed=5",
    )


def test_more_values_in_the_tensors_are_no_more_bytes_to_the_host():
    # Ten times the features and windows: what leaves the device does not grow with them.
    run(
        """
        def left(features, window):
            before = counts().bytes_out
            found = tw.features("us5", [f"sma({5 + n}) as s{n}" for n in range(features)], window=window, start="2012-06-01", device="cuda")
            taken = Taken(found.x.__dlpack__())
            size = taken.bytes
            taken.end()
            return counts().bytes_out - before, size
        few, small = left(2, 3)
        many, large = left(20, 30)
        assert few == many and large == 100 * small and few < large, (few, many, small, large)
        """
    )


def test_capsules_of_both_kinds_and_streams():
    run(
        """
        found = of("cuda")
        old, new = Taken(found.x.__dlpack__()), Taken(found.x.__dlpack__(max_version=(1, 2), stream=1))
        assert (old.name, new.name) == (b"dltensor", b"dltensor_versioned")
        assert (new.managed.major, new.managed.minor, new.managed.flags) == (1, 0, 0) and new.address == old.address
        copied = Taken(found.x.__dlpack__(max_version=(1, 0), copy=True, stream=2))
        assert copied.managed.flags == 2 and copied.address != old.address
        stream = driver.trawl_test_stream(0)
        other = Taken(found.x.__dlpack__(copy=True, stream=stream))
        # What the library's stream waits for is the copy.
        assert driver.trawl_test_run(0, stream) and other.read() == old.read()
        assert Taken(found.x.__dlpack__(stream=-1)).address == old.address
        assert Taken(found.x.__dlpack__(copy=False, dl_device=(2, 0))).address == old.address
        for named in ({"stream": 0}, {"stream": -2}, {"stream": "1"}, {"dl_device": (1, 0)}, {"dl_device": (2, 1)}):
            try:
                found.x.__dlpack__(**named)
            except BufferError:
                continue
            raise AssertionError(named)
        try:
            found.x.__array_interface__
        except AttributeError as error:
            assert "cuda:0" in str(error)
        """,
        "when=late",
    )


def test_memory_lives_as_long_as_somebody_uses_it_and_no_longer():
    run(
        """
        found = of("cuda")
        del found
        gc.collect()
        tw._native.close_devices()
        # The device is gone with its last tensor: nothing was left of it.
        assert counts().used_bytes == 0

        found = of("cuda")
        stream = driver.trawl_test_stream(0)
        unused = found.x.__dlpack__(max_version=(1, 0))
        taken, want = Taken(found.x.__dlpack__(stream=stream)), host_bytes(of("cpu").x)
        del found, unused
        gc.collect()
        tw._native.close_devices()
        assert taken.read() == want
        # The library gave it back, while its stream still uses it.
        context = ctypes.c_void_p()
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and driver.cuCtxSetCurrent(context) == 0
        driver.trawl_test_block(0, stream)
        taken.end()
        again = of("cuda", window=2)
        assert taken.read() == want
        driver.trawl_test_go_on(0)
        assert driver.cuCtxSynchronize() == 0 and taken.read() is None
        """,
        "when=late",
    )


def test_deleters_after_the_context_has_ended_and_after_a_stream_is_gone_do_nothing_wrong():
    done = run(
        """
        found = of("cuda")
        stream = driver.trawl_test_stream(0)
        gone = Taken(found.x.__dlpack__(stream=stream))
        driver.trawl_test_destroy(0, stream)
        gone.end()
        taken, unused = Taken(found.x.__dlpack__()), found.mask.__dlpack__()
        driver.trawl_test_end(0)
        for named in ({}, {"copy": True}):
            try:
                found.x.__dlpack__(**named)
            except BufferError as error:
                assert "lost" in str(error), error
            else:
                raise AssertionError("the context has ended")
        try:
            of("cuda", window=6)
        except tw.TrawlError as error:
            assert error.kind == "unavailable" and "lost" in str(error), error
        else:
            raise AssertionError("a device that is lost is used")
        taken.end()
        del found, unused
        gc.collect()
        print("ended well")
        """
    )
    assert done.stdout == b"ended well\n"


def test_a_device_that_is_too_small_is_a_mistake_with_what_to_do():
    run(
        """
        try:
            of("cuda", window=2000)
        except tw.Mistake as mistake:
            assert "out of memory" in str(mistake) and "device='cpu'" in mistake.help, mistake
        else:
            raise AssertionError("there is no room for it")
        assert len(of("cuda", window=2, start="2013-02-01")) > 0
        """,
        "memory=24000000",
    )


def test_the_second_device_by_its_number():
    run(
        """
        found = of("cuda:1")
        assert found.x.device == "cuda:1" and Taken(found.x.__dlpack__()).read(1) == host_bytes(of("cpu").x)
        assert counts(0).launches == 0 and counts(1).launches > 0
        """,
        "when=late;when=late",
    )


def test_without_a_gpu_and_of_no_device_the_mistake_has_its_place():
    for device in ("cuda", "cuda:7", "cuda:x", "gpu", ""):
        with pytest.raises(tw.Mistake) as caught:
            tw.features("us5", "close", window=2, start="2013-02-01", device=device)
        mistake = caught.value
        place = mistake.mistakes[0]
        assert (place.source, place.excerpt) == ("device", device) and place.expected and "device='" in mistake.help
        assert f"device='{device}'" in place.message and "device" in str(mistake)
