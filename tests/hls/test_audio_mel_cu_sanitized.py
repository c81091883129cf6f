"""audio_mel_cu x csim under the address and UB sanitizers, with buffers of exactly the sizes it is told."""

import random
import struct
import subprocess

import pytest
from test_wav import damaged, verdict

from headrace.host.dpu.specs import RATES, AudioSpec
from headrace.host.dpu.units.audio_cu import tables
from headrace.host.dpu.units.status import Status

TIMEOUT_S = 900


@pytest.mark.parametrize("count", [200, *(pytest.param(count, marks=pytest.mark.slow) for count in (500, 20000))])
def test_no_access_lies_outside_a_buffer_whatever_the_file_and_the_settings(csim_executable, tmp_path, count):
    program = csim_executable("audio_mel_cu")
    rng = random.Random(count)
    of_rate = [tables(AudioSpec(), rate).tobytes() for rate in RATES]
    records = []
    for file in damaged(count, seed=count + 3):
        rate = int.from_bytes(file[24:28], "little")
        capacity = rng.choice([0, 15, 400, 5000, 200_000, 200_000])
        taps_rate = rate if rate in RATES and rng.random() < 0.9 else rng.choice([*RATES, 0])
        settings = (
            capacity,
            rng.choice([0, 1, 1, 1, 2]),
            rng.choice([80, 80, 4, 128, 3]),
            rng.choice([0, 1, 1, 2]),
            taps_rate,
        )
        records.append((file, settings))
    path = tmp_path / "corpus"
    parts = [struct.pack("<8I", *map(len, of_rate)), *of_rate]
    parts += [struct.pack("<6I", len(file), *settings) + file for file, settings in records]
    path.write_bytes(b"".join(parts))
    done = subprocess.run([program, path], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(told) == count
    for (file, (capacity, stage, mels, left_out, taps_rate)), (status, outputs, samples) in zip(
        records, told, strict=True
    ):
        expected, rate, pcm = verdict(file)
        if stage > 1 or taps_rate not in RATES or (stage == 1 and (mels == 3 or left_out == 2)):
            assert (status, outputs, samples) == (Status.BAD_ARGUMENT, 0, 0)
        elif expected != Status.OK:
            assert (status, outputs, samples) == (expected, 0, 0)
        elif rate not in (16000, taps_rate):
            assert (status, outputs, samples) == (Status.BAD_ARGUMENT, 0, len(pcm))
        else:
            count_16k = -(-len(pcm) * 16000 // rate)
            frames = count_16k // 160 + 1
            needed = (frames + 4) * mels * 4 if stage else 4 * count_16k
            assert samples == len(pcm) and outputs == (frames if stage else count_16k)
            assert status == (Status.OK if needed <= capacity else Status.BUFFER_TOO_SMALL)
    assert {Status.OK, Status.BUFFER_TOO_SMALL, Status.BAD_ARGUMENT, Status.TRUNCATED} <= {
        Status(one[0]) for one in told
    }
