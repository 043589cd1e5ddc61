"""Runs a contestant as a new process and says what it took. Only the standard library is imported here, and no data is read: the peak of
resident memory that the kernel reports of a child counts that of its parent until the child's program is loaded."""

import os
import pathlib
import signal
import subprocess
import threading
import time

# Seconds after which a contestant is ended; it is then reported as failed.
SECONDS_MAX = 900


class Failed(Exception):
    """A contestant that did not end with 0, with the end of what it wrote."""


def run(command, environment, log):
    """wall_s, cpu_s, resident_mb and read_blocks of one process and those it has waited for. Resident memory is that of the largest
    process. `log` is the file for what it prints."""
    with open(log, "wb") as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                   start_new_session=True)
        limit = threading.Timer(SECONDS_MAX, lambda: os.killpg(process.pid, signal.SIGKILL))
        limit.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            limit.cancel()
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        text = pathlib.Path(log).read_text(errors="replace")[-2000:]
        raise Failed(f"{' '.join(map(str, command))}\nended with {process.returncode}:\n{text}")
    return {
        "wall_s": wall,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "resident_mb": usage.ru_maxrss / 1024,
        "read_blocks": usage.ru_inblock,
    }


def drop_from_cache(folder):
    """Asks the kernel to forget the pages of a folder's files, or of one file. It needs no rights, and the kernel may refuse: a run after
    it counts as cold only if it read blocks."""
    path = pathlib.Path(folder)
    for file in [path] if path.is_file() else [entry for entry in path.rglob("*") if entry.is_file()]:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def bytes_of(path):
    """Bytes of a file, or of all files of a folder; 0 where there is none."""
    path = pathlib.Path(path)
    if path.is_file():
        return path.stat().st_size
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
