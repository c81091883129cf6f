"""image_cu x csim under the address and UB sanitizers, with buffers of exactly the sizes it is told."""

import random
import struct
import subprocess

import cv2
import numpy as np
import pytest

from headrace.host.dpu.units.status import Status

TIMEOUT_S = 240


def corpus(seed: int, count: int) -> list[tuple[bytes, tuple[int, ...]]]:
    rng = random.Random(seed)
    noise = np.random.default_rng(seed)
    records = []
    for _ in range(count):
        size = (rng.randint(1, 60), rng.randint(1, 60), 3)
        options = [cv2.IMWRITE_JPEG_QUALITY, rng.randint(1, 100), cv2.IMWRITE_JPEG_RST_INTERVAL, rng.choice([0, 0, 2])]
        data = bytearray(cv2.imencode(".jpg", noise.integers(0, 256, size, np.uint8), options)[1].tobytes())
        for _ in range(rng.choice([0, 0, 1, 3])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.1:
            data = data[: rng.randrange(len(data))]
        stage, form = rng.choice([0, 1, 2, 3, 3, 3, 4]), rng.choice([0, 1, 2, 2, 3])
        capacity = rng.choice([0, 1, 15, 100, 4096, 65536, 400_000])
        offset = rng.choice([0, 1, 7, 0xFFFFFFFF, 0xFFFFFFFF])
        settings = (capacity, stage, form, rng.choice([0, 1, 8, 40, 100]), rng.choice([1, 2, 5, 13, 40]), offset)
        records.append((bytes(data), settings))
    return records


@pytest.mark.parametrize("count", [150, pytest.param(600, marks=pytest.mark.slow)])
def test_no_access_lies_outside_a_buffer_whatever_the_file_and_the_settings(csim_executable, tmp_path, count):
    program = csim_executable("image_cu")
    records = corpus(1, count)
    path = tmp_path / "corpus"
    path.write_bytes(b"".join(struct.pack("<7I", len(data), *settings) + data for data, settings in records))
    done = subprocess.run([program, path], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-3000:]
    statuses = [Status(int(line.split()[0])) for line in done.stdout.splitlines()]
    assert len(statuses) == count
    # The corpus reaches what it is made for.
    wanted = {Status.OK, Status.BUFFER_TOO_SMALL, Status.CROP_OUTSIDE, Status.BAD_ARGUMENT, Status.TRUNCATED}
    assert wanted <= set(statuses)
