"""Files that the system refuses to open: one line says which and why, and what was there before stays."""

import errno
import os
import sys
from pathlib import Path

import pytest
from command import headrace_here

SIMULATE = ("simulate", "--model", "resnet50", "--policy", "lazy", "--requests", "50")
COMMANDS = {
    "trace": (*SIMULATE, "--trace", "{folder}/trace.json"),
    "container": ("build", "--target", "sw_emu", "--image-cus", "1", "-o", "{folder}/dpu.xclbin"),
    "journal": ("simulate", "--grid", "grid.toml", "--out", "{folder}"),
}
WRITES = os.O_WRONLY | os.O_RDWR


class Refusal:
    """Refuses each opening of a file below `folder` for writing, after the first `after` of them."""

    folder: Path | None = None
    error = 0
    after = 0
    seen = 0

    def hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if event != "open" or self.folder is None or not isinstance(arguments[0], (str, bytes)):
            return
        path, mode, flags = arguments
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(int(str(flags)) & WRITES)
        if writes and os.fsdecode(path).startswith(f"{self.folder}/"):
            self.seen += 1
            if self.seen > self.after:
                raise OSError(self.error, os.strerror(self.error), os.fsdecode(path))


REFUSAL = Refusal()
sys.addaudithook(REFUSAL.hook)  # for the rest of the process; it does nothing where no folder is set


@pytest.mark.quick(4)
@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("name", COMMANDS)
def test_whichever_opening_is_refused_one_line_says_so(name, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text('model = "resnet50"\npolicy = ["lazy", "serial"]\nrequests = 50\n')
    folder = tmp_path / "results"
    folder.mkdir()
    command = [word.format(folder=folder) for word in COMMANDS[name]]
    file = Path(command[-1]) if name in ("trace", "container") else None
    refused = 0
    for after in range(20):
        if file is not None:
            file.write_text("the one before")
        monkeypatch.setattr(REFUSAL, "seen", 0)
        monkeypatch.setattr(REFUSAL, "after", after)
        monkeypatch.setattr(REFUSAL, "error", error)
        monkeypatch.setattr(REFUSAL, "folder", folder)
        done = headrace_here(*command)
        monkeypatch.setattr(REFUSAL, "folder", None)
        if done.returncode == 0:
            break
        refused += 1
        assert done.returncode in (1, 2) and os.strerror(error) in done.stderr and "Traceback" not in done.stderr
        assert file is None or file.read_text() == "the one before"
    assert refused and done.returncode == 0 and REFUSAL.seen > 0
    assert file is None or file.stat().st_size > 1000
