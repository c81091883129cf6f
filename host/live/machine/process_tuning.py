"""This module has settings of the process and the machine for a server that must not pause.

Each function removes one cause of pauses or failures:

    without_long_collections   garbage collections that look through all imported modules
    awake_cores                cores that sleep and wake up late
    keep_freed_memory          memory that the system maps and clears again for every request
    allow_descriptors          a limit of open files that is lower than the system allows
"""

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
LARGEST_KEPT_BYTES = 32 << 20  # the largest value that glibc takes
LEAST_DESCRIPTORS = 128  # for workers, ports, files of libraries, and some connections

_log = logging.getLogger(__name__)
_inside = 0  # how many blocks of `without_long_collections` run now
_thaws = True  # whether the last of them unfreezes what the first has frozen; False since the program froze some itself


@contextlib.contextmanager
def without_long_collections() -> Iterator[None]:
    """Keep the garbage collector from searching the objects that exist before the block.

    A full collection with torch imported takes a tenth of a second, and nothing is served meanwhile. If the program has
    called `gc.freeze` itself, everything stays frozen after this block and later ones: Python can only unfreeze all
    objects at once.
    """
    global _inside, _thaws
    if _inside == 0:
        gc.collect()
        _thaws = _thaws and gc.get_freeze_count() == 0  # to count, Python goes through all frozen objects
        gc.freeze()
    _inside += 1
    try:
        yield
    finally:
        _inside -= 1
        if _inside == 0 and _thaws:
            gc.unfreeze()


def allow_descriptors(wanted: int) -> None:
    """Raise this process's limit of open files to `wanted`, or as far as the system allows.

    Raises:
        UsageError: The system allows fewer than LEAST_DESCRIPTORS.
    """
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
    """Keep the idle cores of this machine from sleeping inside the block (Linux's PM QoS for a wake-up latency of 0).

    A core that sleeps wakes up late and finds its caches cold. On a virtual machine a sleeping core goes back to the
    host. This costs the power of all cores.

    Yields False, and changes nothing, if the process may not write to /dev/cpu_dma_latency.
    """
    try:
        file = os.open(LATENCY_FILE, os.O_WRONLY)
    except OSError as error:
        _log.warning("cores are not kept awake: %s", error)
        yield False
        return
    try:
        os.write(file, struct.pack("i", 0))  # holds until the file is closed; the end of the process closes it too
        yield True
    finally:
        os.close(file)


def keep_freed_memory() -> bool:
    """Make glibc's allocator keep up to KEPT_BYTES of freed memory for later requests.

    By default it gives large blocks back to the system at once. The system then maps and clears the pages again for the
    next request, which can take most of the server's time for that request.

    Returns False, and changes nothing, on a system with another allocator.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES))
