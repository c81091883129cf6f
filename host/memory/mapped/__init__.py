"""Files of other processes, copied through a mapping by an extension in C++.

A plain copy from a mapping ends the process by SIGBUS if the file's owner makes the file shorter meanwhile. The
extension catches that signal during its own copies. Its copy then returns False, and the caller asks the system for the
reason. A copy through a mapping takes a fraction of the time of a system call that copies the same bytes.

`mapped_file` is the extension. It exists only where a compiler was found at installation. Without it there are no
mappings, and callers read and write by system calls."""

from typing import Any


def mapped(file: int, size: int) -> Any:
    """Return a mapping of the first `size` bytes of an open file, or None where the system or the build has none.

    The caller closes the mapping before the file. `read_into(buffer, offset)` and `write(buffer, offset)` copy all
    bytes of a contiguous buffer. They return False if the file does not have these bytes."""
    try:
        from headrace.host.memory.mapped import mapped_file
    except ImportError:
        return None
    try:
        return mapped_file.MappedFile(file, size)
    except OSError:  # no address space is left, or the file cannot be mapped
        return None
