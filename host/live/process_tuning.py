"""This module sets up the process and the machine so that a serving process answers at once.

It avoids long garbage collections, sleeping cores, memory that the system clears anew for every request, and a limit of
descriptors that is lower than it need be."""

import contextlib
import ctypes
import gc
import logging
import os
import resource
import struct
from collections.abc import Iterator

from headrace.batching import UsageError

LATENCY_FILE = "/dev/cpu_dma_latency"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
KEPT_BYTES = 256 << 20
LARGEST_KEPT_BYTES = 32 << 20  # the largest that glibc takes
LEAST_DESCRIPTORS = 128  # workers, ports, files of the libraries, and some connections

_log = logging.getLogger(__name__)
_inside = 0  # how many are inside `without_long_collections`
_thaws = True  # whether the last of them undoes what the first has frozen


@contextlib.contextmanager
def without_long_collections() -> Iterator[None]:
    """Keep the garbage collector from searching the objects that lived before.

    Beside an imported torch, looking through all of it again took 0.11 s, in which nothing was served. A program that
    has called `gc.freeze` itself finds its objects frozen afterwards, too: Python can only thaw all at once."""
    global _inside, _thaws
    if _inside == 0:
        gc.collect()
        _thaws = gc.get_freeze_count() == 0
        gc.freeze()
    _inside += 1
    try:
        yield
    finally:
        _inside -= 1
        if _inside == 0 and _thaws:
            gc.unfreeze()


def allow_descriptors(wanted: int) -> None:
    """Raise this process's limit of descriptors to `wanted`, or as far as the system allows.

    Raises UsageError where even a few connections are more than it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST_DESCRIPTORS:
        raise UsageError(
            f"this process may open {hard} files; a server needs {LEAST_DESCRIPTORS} at least: raise the limit with "
            "`ulimit -n`, or LimitNOFILE of its systemd unit"
        )
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))


@contextlib.contextmanager
def awake_cores() -> Iterator[bool]:
    """Inside, idle cores of this machine wait for work with open eyes: Linux's PM QoS for a wake-up latency of 0.

    A core that sleeps, on a virtual machine one that goes back to its host, is woken late and finds its caches cold:
    measured on a virtual machine, a task began 0.11 to 0.15 ms after the one before it, and 0.04 to 0.06 ms with cores
    awake. It costs the power of all cores. Gives False, and changes nothing, where the system does not allow it: it
    needs write access to /dev/cpu_dma_latency."""
    try:
        file = os.open(LATENCY_FILE, os.O_WRONLY)
    except OSError as error:
        _log.warning("cores are not kept awake: %s", error)
        yield False
        return
    try:
        os.write(file, struct.pack("i", 0))  # holds until the file is closed, also by the end of the process
        yield True
    finally:
        os.close(file)


def keep_freed_memory() -> bool:
    """From now on glibc's allocator keeps up to KEPT_BYTES of what is freed for what comes next.

    By default it gives large memory back to the system at once, and the next request's pages are cleared and mapped
    anew: measured for gRPC messages of 602,112 bytes, 1.2 of 1.5 ms of the server's time a request; with this 0.3.
    Returns False, and changes nothing, on a system with another allocator."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES))
