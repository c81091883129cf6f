"""The box in which files of networks are read, and what it promises.

A file of a network that others made is read twice: by a process that only reads and then ends, and by the workers that
serve the network. Both use the box. It holds for programs of torch.export (`.pt2`) and for files of weights.

What the box promises:

- **No code from a file runs.** Pickles are read by torch's restricted unpickler. A program may call only operators that
  compute tensors from tensors (`operators`); its names, sizes and structures cannot become Python code
  (`program_text`). So a program opens no file, no socket and no process.
- **A damaged file is refused.** The CRC-32 of every entry of a zip archive is compared before anything is used. With a
  SHA-256 in the settings, the file must be exactly that one. Files of safetensors and those of torch before 1.6 have
  no checksum of their own.
- **A file unpacks to no more than its own size.** Compressed archives are refused.
- **Memory has a bound**: `COPIES` times the files' sizes, plus `FileRules.memory_mib`, plus `CORE_MIB` for each core.
  Beyond it the load fails with a message. A machine with little memory needs a smaller `memory_mib`.
- **Time has a bound.** The process that reads has `CPU_S` seconds of processor time and `reading.LIMIT_S` seconds in
  all, and a worker `process.START_TIMEOUT_S` to start. Both end at once when the model is unloaded or the server ends.
- **It writes nothing.** While a file is read, the process can write to no file and holds at most `OPEN_FILES`
  descriptors.

What the box does not promise:

- Code of one's own (`module:function`) is the user's own and is not restricted; only the limits of time hold for it.
  Its file of weights is still read in the box.
- torch's own kernels are trusted. An error in one of them may be within a program's reach.
- After its load a network runs in its worker without these limits. It may take as much memory and time for a batch as
  its operators need, and its answers may hold memory that it has not initialized.
- The bounds are limits of a process, not a sandbox: a user who must not trust a file at all should run the server in a
  container without secrets.
"""

import contextlib
import resource
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from headrace.batching import UsageError
from headrace.host.workers.devices import usable_cores
from headrace.host.workers.networks.foreign.rules import ANY_FILE, EXPORTED, FileRules

COPIES = 4  # of the files: the weights as read, as the network's own, and with what torch makes of them
CORE_MIB = 80  # for the stack and the heap of a thread of torch's
CPU_S = 360  # of the process that reads; all cores together
OPEN_FILES = 256
_MIB = 1 << 20
_MEMORY_ERRORS = ("can't allocate memory", "bad_alloc", "Cannot allocate memory")


def limit_reading_process() -> None:
    """Limit this process for the rest of its life, whatever it reads: its processor time, and no core dump."""
    _lower(resource.RLIMIT_CPU, CPU_S, CPU_S + 1)  # at the first limit a signal ends it that names the reason
    _lower(resource.RLIMIT_CORE, 0, 0)


@contextlib.contextmanager
def box(what: str, files: Iterable[Path], rules: FileRules = ANY_FILE) -> Iterator[None]:
    """Limit this process while it reads these files. Raises UsageError, which begins with `what`, if it takes more
    memory. A box within a box does not widen it."""
    with contextlib.suppress(OSError):
        tempfile.gettempdir()  # which torch asks for, and which writes a file the first time
    size = sum(path.stat().st_size for path in files if path.is_file())
    room = rules.memory_mib * _MIB + COPIES * size + CORE_MIB * _MIB * usable_cores()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_lowered(resource.RLIMIT_DATA, _data_bytes() + room))
        stack.enter_context(_lowered(resource.RLIMIT_NOFILE, OPEN_FILES))
        stack.enter_context(_lowered(resource.RLIMIT_FSIZE, 0))
        try:
            yield
        except Exception as error:
            if not _is_of_memory(error):
                raise
            raise UsageError(
                f"{what}: reading it takes more than {room // _MIB} MiB of memory; if it may, give a larger "
                f"--read-memory-mib than {rules.memory_mib}"
            ) from error


def box_of(source: str, weights: str | None, rules: FileRules = ANY_FILE) -> contextlib.AbstractContextManager[None]:
    """Return the box for all that is done with a network as it is loaded. Only a program from a file has one: the code
    of other networks is the user's own, or torchvision's."""
    if not source.endswith(EXPORTED):
        return contextlib.nullcontext()
    return box(f"--model {source}", [Path(name) for name in (source, weights) if name is not None], rules)


def _data_bytes() -> int:
    """Return what counts for RLIMIT_DATA: private memory that can be written."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmData:")[2].split()[0]) << 10


def _is_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or any(text in str(error) for text in _MEMORY_ERRORS):
            return True
        error = error.__cause__
    return False


def _lower(kind: int, soft: int, hard: int) -> None:
    own = zip(resource.getrlimit(kind), (soft, hard), strict=True)
    resource.setrlimit(kind, tuple(new if old == resource.RLIM_INFINITY else min(old, new) for old, new in own))


@contextlib.contextmanager
def _lowered(kind: int, limit: int) -> Iterator[None]:
    """Lower the soft limit, and raise it again to what it was."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit if soft == resource.RLIM_INFINITY else min(soft, limit), hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))
