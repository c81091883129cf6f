"""Test copies through the mapping of a file that its owner may make shorter at any time."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_mapping import without_extension
from properties import examples

from headrace.host.memory.mapped import mapped

PAGE = 4096
LONG = (1 << 20) + PAGE  # a copy of so many bytes lets other threads run

# The mapping belongs to a file without bytes, and its descriptor to one that has them all: a copy begins, and faults.
FAULT = """
import faulthandler, os, signal
from headrace.host.memory.mapped import mapped

def file(size):
    made = os.memfd_create("test")
    os.ftruncate(made, size)
    return made

size = {size}
one, other = file(size), file(size)
mapping = mapped(one, size)
assert mapping.write(bytes(size), 0)
os.ftruncate(one, 0)
os.dup2(other, one)
{before}
for _ in range(3):
    assert not mapping.read_into(bytearray(size), 0)
    assert not mapping.write(bytes(size), 0)
{after}
print("alive")
"""


@pytest.fixture
def file():
    made = os.memfd_create("test")
    yield made
    os.close(made)


@pytest.fixture
def mapping(file):
    """Provide `mapping(size)`, which gives the file this size and maps it."""
    with contextlib.ExitStack() as stack:

        def made(size):
            os.ftruncate(file, size)
            mapping = mapped(file, size)
            assert mapping is not None, "the extension is missing; run scripts/setup"
            stack.callback(mapping.close)
            return mapping

        yield made


@examples(30, 300)
@given(offset=st.integers(0, PAGE), size=st.integers(0, 2 * PAGE), seed=st.integers(0, 99))
def test_a_copy_moves_the_bytes_that_the_file_has_there(offset, size, seed):
    file = os.memfd_create("test")
    os.ftruncate(file, 5 * PAGE)
    content = np.random.default_rng(seed).integers(0, 256, 5 * PAGE, np.uint8)
    os.pwrite(file, content, 0)
    mapping = mapped(file, 5 * PAGE)
    taken = np.zeros((2, size), np.uint8)
    assert mapping.read_into(taken[1], offset)
    assert taken[1].tobytes() == content[offset : offset + size].tobytes() and not taken[0].any()
    assert mapping.write(taken, offset)
    content[offset : offset + 2 * size] = taken.reshape(-1)
    assert os.pread(file, 5 * PAGE, 0) == content.tobytes()
    mapping.close()
    os.close(file)


def test_copies_outside_the_mapping_are_refused(mapping):
    made = mapping(PAGE)
    for offset in (-1, 1, PAGE + 1, 1 << 62):
        for copy in (made.read_into, made.write):
            with pytest.raises(ValueError, match="outside the mapping"):
                copy(bytearray(PAGE), offset)
    with pytest.raises((BufferError, ValueError)):
        made.write(np.zeros((64, 64), np.uint8).T, 0)
    made.close()
    with pytest.raises(ValueError, match="closed"):
        made.read_into(bytearray(1), 0)


def test_a_shorter_file_is_neither_read_nor_written_nor_made_longer(file, mapping):
    made = mapping(2 * PAGE)
    os.ftruncate(file, PAGE + 1)
    assert made.read_into(bytearray(PAGE + 1), 0)
    assert not made.read_into(bytearray(PAGE + 2), 0)
    assert not made.write(bytes(PAGE), PAGE)
    assert os.fstat(file).st_size == PAGE + 1


def ended(size, before="", after=""):
    code = FAULT.format(size=size, before=before, after=after)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("size", [PAGE, LONG])
@pytest.mark.parametrize("before", ["", "faulthandler.enable()"])
def test_a_file_that_loses_its_pages_during_a_copy_ends_the_copy_only(size, before):
    run = ended(size, before)
    assert (run.returncode, run.stdout, run.stderr) == (0, "alive\n", "")


@pytest.mark.parametrize("before", ["", "faulthandler.enable()", "faulthandler.enable(); mapping.write(b'', 0)"])
@pytest.mark.parametrize(
    "after",
    ["os.kill(os.getpid(), signal.SIGBUS)", "import mmap; m = mmap.mmap(other, size); os.ftruncate(other, 0); m[0]"],
)
def test_every_other_bus_error_still_ends_the_process(before, after):
    run = ended(PAGE, before, after)
    assert (run.returncode, run.stdout) == (-signal.SIGBUS, "")
    assert ("Bus error" in run.stderr) == bool(before)


def test_a_file_that_becomes_shorter_and_longer_all_the_time_ends_no_process(file, mapping):
    made = mapping(LONG)
    ends = threading.Event()

    def change():
        while not ends.is_set():
            os.ftruncate(file, PAGE)
            os.ftruncate(file, LONG)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(200):
            made.read_into(bytearray(LONG - 1), 1)
            made.write(bytes(LONG - 1), 1)
    finally:
        ends.set()
        changing.join()
    assert os.fstat(file).st_size == LONG


def test_a_mapping_that_is_closed_during_a_copy_stays_until_the_copy_has_ended():
    size = 64 << 20
    file = os.memfd_create("test")
    os.ftruncate(file, size)
    content, begun = bytes(range(256)) * (size // 256), threading.Event()
    mappings = [mapped(file, size) for _ in range(20)]
    copied = []

    def copy():
        with contextlib.suppress(ValueError):  # it was closed before its copy began
            for mapping in mappings:
                begun.set()
                copied.append(mapping.write(content, 0))

    copying = threading.Thread(target=copy)
    copying.start()
    begun.wait(10)
    for mapping in mappings:
        mapping.close()
    copying.join(30)
    assert not copying.is_alive()
    with open("/proc/self/maps") as maps:
        assert not [line for line in maps if "memfd:test" in line]
    if copied:
        assert all(copied)
        assert os.pread(file, size, 0) == content
    os.close(file)


def test_a_file_that_cannot_be_mapped_has_no_mapping(monkeypatch, file):
    assert mapped(file, 1 << 62) is None
    reading, writing = os.pipe()
    assert mapped(reading, PAGE) is None
    for end in (reading, writing):
        os.close(end)
    os.ftruncate(file, PAGE)
    without_extension(monkeypatch)
    assert mapped(file, PAGE) is None
