"""Compare the results of pyxrt's calls on the emulated device and on the real `pyxrt`s that are given, as a table.

    make conformance            # the emulated device alone; leaves build/conformance/vadd_{sw,hw}_emu.xclbin
    headrace xrt-env build/conformance/vadd_hw_emu.xclbin -o env
    make conformance REAL="--jobs 4 --real '2.16 hw_emu=FOLDER=env'"

FOLDER holds `pyxrt`. The third part is the environment that `xrt-env` wrote with that release, for sw_emu or hw_emu.
The containers are built from tests/bitstreams/vadd. Each call runs in its own process and session with a time limit,
because some calls end the process. The shim of hw_emu sleeps for ten seconds in each, so --jobs runs several at once.
"""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from headrace.bitstreams.build import build_kernels
from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.xclbin import Mode

LIMIT_S = 150  # hw_emu's shim sleeps for ten seconds when it loads, and in its first wait for ten times the limit
PRELUDE = """
import sys
if {real!r}:
    sys.path.insert(0, {real!r})
    import pyxrt as x
else:
    from headrace.host.xrt import emulation as x
path = {container!r}
TO, FROM = x.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, x.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE
d = x.device(0)
u = d.load_xclbin(path)
k = x.kernel(d, u, "vadd")
kept = []  # a run of XRT does not keep its buffers alive
def buffer(n=4096, bank=0, flags=x.bo.normal):
    kept.append(x.bo(d, n, flags, bank))
    return kept[-1]
def ready(scalar=3, sleep_ms=0):
    r = x.run(k)
    for i in range(3):
        r.set_arg(i, buffer(4096, k.group_id(i)))
    for i, v in ((3, 16), (4, scalar), (5, sleep_ms)):
        r.set_arg(i, v)
    return r
"""
# The result of a call is the repr of the expression, or the class of the exception.
CALLS = (
    "d.get_xclbin_uuid().to_string() == u.to_string()",
    "d.get_info(x.xrt_info_device.name) != ''",
    "x.device()",
    "x.device(99)",
    "x.device('nonsense')",
    "d.load_xclbin('missing.xclbin')",
    "d.load_xclbin(3)",
    "d.load_xclbin(x.xclbin(path)).to_string() == u.to_string()",
    "u == d.get_xclbin_uuid()",
    "x.uuid('12345678-1234-1234-1234-123456789abc').to_string()",
    "x.kernel(d, u, 'missing')",
    "x.kernel(d, u, 'vadd:{vadd_1}').group_id(0)",
    "x.kernel(d, u, 'vadd:{missing}')",
    "x.kernel(d, u, 'vadd:{vadd_1,missing}')",
    "x.kernel(d, u, 'vadd', x.kernel.exclusive).group_id(0)",
    "x.kernel(d, 'text', 'vadd')",
    "[k.group_id(i) for i in range(3)]",
    "k.group_id(-1)",
    "k.group_id(99)",
    "buffer().size()",
    "buffer(1).size()",
    "buffer(0).size()",
    "buffer(-1).size()",
    "buffer(1 << 40).size()",
    "buffer(4096, 99).size()",
    "buffer(4096, 0, x.bo.cacheable).size()",
    "buffer(4096, 0, x.bo.host_only).size()",
    "buffer(4096, 0, x.bo.device_only).size()",
    "buffer().address() % 4096",
    "len(buffer().map())",
    "buffer().write(b'abc', 0)",
    "buffer().write(b'abc', 4095)",
    "buffer().write(b'abc', -1)",
    "bytes(buffer().read(4, 0))",
    "buffer().read(8, 4092)",
    "(lambda b: (b.write(b'abcd', 0), bytes(b.read(4, 0))))(buffer())",
    "buffer().sync(TO, 4096, 0)",
    "buffer().sync(TO, 8192, 0)",
    "buffer().sync(TO, 4096, 1)",
    "buffer().sync(3, 4096, 0)",
    "x.bo(buffer(), 1024, 0).size()",
    "x.bo(buffer(), 1024, 4000).size()",
    "x.bo(buffer(), 8192, 0).size()",
    "x.run()",
    "x.run().start()",
    "x.run().state()",
    "ready().state()",
    "(lambda r: (r.start(), r.wait())[1])(ready())",
    "(lambda r: (r.start(), r.wait(10000))[1])(ready())",
    "(lambda r: (r.start(), r.wait(), r.state())[2])(ready())",
    "(lambda r: (r.start(), r.wait(), r.start(), r.wait())[3])(ready())",
    "ready().wait(10)",
    "x.run(k).set_arg(99, 1)",
    "x.run(k).set_arg(-1, 1)",
    "x.run(k).set_arg(3, 1 << 40)",
    "x.run(k).set_arg(3, -1)",
    "x.run(k).set_arg(3, 1.5)",
    "x.run(k).set_arg(3, buffer())",
    "x.run(k).set_arg(0, 5)",
    "x.run(k).set_arg(0, 'text')",
    "(lambda r: (r.start(), r.wait('text')))(ready())",
    "x.xclbin()",
    "x.xclbin('missing.xclbin')",
    "x.xclbin(path).get_xsa_name()",
    "x.xclbin(path).get_uuid().to_string() == u.to_string()",
    "[k.get_name() for k in x.xclbin(path).get_kernels()]",
    "[m.get_tag() for m in x.xclbin(path).get_mems()][:2]",
    "x.xclbin(path).get_mems()[0].get_size_kb()",
    "x.ert_cmd_state(4)",
    "x.ert_cmd_state(3)",
    "x.ert_cmd_state.ERT_CMD_STATE_COMPLETED == 4",
    "int(x.bo.cacheable)",
    "x.device(-1)",
    "x.device(0).get_xclbin_uuid().to_string() == u.to_string()",
    "d.get_info(x.xrt_info_device.bdf) != ''",
    "d.get_info(99)",
    "d.load_xclbin(b'bytes')",
    "x.uuid('nonsense').to_string()",
    "x.uuid(3)",
    "len(u.to_string())",
    "hash(u) == hash(u)",
    "x.kernel()",
    "x.kernel(d, u)",
    "x.kernel(d, u, 'vadd', 99)",
    "x.kernel(d, u, 3)",
    "int(x.kernel.shared)",
    "int(x.kernel.exclusive)",
    "k.group_id('text')",
    "k.group_id(3)",
    "k(buffer(), buffer(4096, 1), buffer(), 16, 3, 0).wait()",
    "k(buffer(), buffer(4096, 1), buffer(), 16, 3, 'text').wait()",
    "x.bo()",
    "x.bo(d, 4096, 0).size()",
    "x.bo(d, 4096).size()",
    "x.bo(3, 4096, x.bo.normal, 0)",
    "buffer(4096, 0, 99)",
    "buffer('text')",
    "x.bo(buffer(), 0, 0).size()",
    "x.bo(x.bo(buffer(), 2048, 0), 1024, 0).size()",
    "buffer().read(4, -1)",
    "buffer().read(-1, 0)",
    "len(buffer().read(0, 0))",
    "buffer().write('text', 0)",
    "buffer().write(b'', 0)",
    "buffer().write(bytearray(4), 0)",
    "buffer().write([1, 2], 0)",
    "(lambda m: (m.__setitem__(0, m[1]), m[0] == m[1])[1])(x.bo(d, 4096, x.bo.normal, 0).map())",
    "buffer().sync(FROM, 4096, 0)",
    "buffer().sync(TO)",
    "buffer().sync(TO, -1, 0)",
    "buffer().sync(TO, 0, 0)",
    "(lambda b: (b.write(b'abcd', 0), b.sync(TO, 4, 0), b.sync(FROM, 4, 0), bytes(b.read(4, 0)))[3])(buffer())",
    "x.run(3)",
    "x.run().wait(10)",
    "x.run().set_arg(0, 1)",
    "x.run(k).set_arg('text', 1)",
    "x.run(k).set_arg(0, buffer(4096, 1))",
    "(lambda r: (r.start(), r.wait(-1)))(ready())",
    "x.ert_cmd_state(99)",
    "int(FROM)",
    "x.ert_cmd_state.ERT_CMD_STATE_COMPLETED + 1",
    "x.ert_cmd_state.ERT_CMD_STATE_COMPLETED < 5",
    "x.xclbin(3)",
    "x.xclbin(path).get_kernels()[0].get_num_args()",
    "x.xclbin(path).get_mems()[0].get_base_address()",
    "x.xclbin(path).get_mems()[0].get_used()",
    "x.xclbin(path).get_mems()[0].get_index()",
    "hasattr(x, 'hw_context')",
    "(lambda b: (b.write(b'abcd', 0), b.sync(FROM, 4, 0), bytes(b.map()[:4]))[2])(buffer())",
    "(lambda b: (b.write(b'abcd', 0), b.sync(TO, 4, 0), b.write(b'wxyz', 0), b.sync(FROM, 2, 1), bytes(b.map()[:4])))"
    "(buffer())[4]",
    "buffer(4096, 0, x.bo.p2p).size()",
    "buffer(4096, 0, x.bo.svm).size()",
    "x.run(k).start()",
    "x.run(k).set_arg(3, 1 << 31)",
    "x.run(k).set_arg(3, True)",
    "x.run(k).set_arg(3, None)",
    "(lambda r: (r.start(), r.wait(50))[1])(ready(3, 1000))",
    "(lambda r: (r.start(), r.start()))(ready(3, 1000))",
)


def plain(shown: str) -> str:
    """Return the text without module names and addresses of objects."""
    return re.sub(r" at 0x[0-9a-f]+", "", shown).replace("pyxrt.", "").replace("headrace.host.xrt.emulation.", "")


def outcome(call: str, container: Path, real: str, environment: str) -> str:
    """Run one call. Returns its value, the class of its exception, or that it ended the process or does not return.

    How a call ends the process differs from run to run, so the result does not say it."""
    code = PRELUDE.format(real=real and os.path.abspath(real), container=str(container)) + (
        f"try:\n    shown = repr({call})\nexcept BaseException as error:\n    shown = type(error).__name__\n"
        "import os\nprint('=' + shown, flush=True)\nos._exit(0)\n"
    )
    line = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    if environment:
        line = f". {shlex.quote(os.path.abspath(environment))}/setup.sh; {line}"
    process = subprocess.Popen(
        ["sh", "-c", line],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        cwd=container.parent,  # the shims write logs into the current folder
    )
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "does not return"
    values = [text[1:] for text in output.splitlines() if text.startswith("=")]
    if values:
        return plain(values[-1])
    return "ends the process"


class Backend(NamedTuple):
    """A pyxrt in the folder `real` with an environment of `xrt-env`, or the emulated device if `real` is empty."""

    name: str
    real: str = ""
    environment: str = ""

    def mode(self) -> Mode:
        """Return the mode of the environment."""
        setup = Path(self.environment, "setup.sh").read_text() if self.environment else ""
        return Mode.HW_EMU if "XCL_EMULATION_MODE=hw_emu" in setup else Mode.SW_EMU


def built(mode: Mode) -> Path:
    vadd = Path(__file__).parents[1] / "tests" / "bitstreams" / "vadd"
    path = Path(f"build/conformance/vadd_{mode.name.lower()}.xclbin").resolve()
    hardware = [hls_folder() / "rtl" / "stream_fifo.sv", vadd / "vadd.sv"]
    sources = hardware if mode is Mode.HW_EMU else [vadd / "vadd.cpp"]
    build_kernels(path, sources, [], [(vadd / "kernel.xml").read_bytes()], {"vadd": 2}, mode)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="append", default=[], metavar="NAME=FOLDER=ENVIRONMENT")
    parser.add_argument("--jobs", type=int, default=1, help="calls that run at once")
    arguments = parser.parse_args()
    containers = {mode: built(mode) for mode in (Mode.SW_EMU, Mode.HW_EMU)}
    backends = [Backend("emulated"), *(Backend(*text.split("=", 2)) for text in arguments.real)]
    print("| call | " + " | ".join(backend.name for backend in backends) + " |")
    print("| --- |" + " --- |" * len(backends))
    equal = [0] * len(backends)

    def outcomes(call: str) -> list[str]:
        return [outcome(call, containers[one.mode()], one.real, one.environment) for one in backends]

    with ThreadPoolExecutor(arguments.jobs) as threads:
        for call, results in zip(CALLS, threads.map(outcomes, CALLS), strict=True):
            equal = [count + (value == results[0]) for count, value in zip(equal, results, strict=True)]
            cells = [f"`{text}`".replace("|", "\\|") for text in (call, *results)]
            print("| " + " | ".join(cells) + " |", flush=True)
    for backend, count in list(zip(backends, equal, strict=True))[1:]:
        print(f"\n{backend.name}: {count} of {len(CALLS)} calls have the same result as on the emulated device.")


if __name__ == "__main__":
    main()
