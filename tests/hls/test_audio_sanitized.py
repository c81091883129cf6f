"""wav and resample x csim under the address and UB sanitizers: damaged files end in a status or in their samples."""

import struct
import subprocess

import pytest
from test_wav import damaged, verdict

from headrace.host.dpu.units.status import Status

TIMEOUT_S = 600


@pytest.mark.parametrize("count", [200, *(pytest.param(count, marks=pytest.mark.slow) for count in (500, 20000))])
def test_damaged_files_are_taken_or_refused_without_an_access_outside(csim_executable, tmp_path, count):
    program = csim_executable("audio")
    files = list(damaged(count, seed=count + 1))
    path = tmp_path / "corpus"
    path.write_bytes(b"".join(struct.pack("<I", len(file)) + file for file in files))
    done = subprocess.run([program, path], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(lines) == count
    for file, (status, samples, _) in zip(files, lines, strict=True):
        expected, rate, pcm = verdict(file)
        assert status == expected
        assert samples == (-(-len(pcm) * 16000 // rate) if expected == Status.OK else 0)
