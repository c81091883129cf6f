"""The process of one part of a check: it writes each row as a line of JSON to stdout.

An exception ends the part, and its text is the last line. Rows that came before count."""

import contextlib
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence

from headrace.batching.errors import one_line
from headrace.host.validation.plan import FULL, SMALL, Check


def main(arguments: Sequence[str]) -> int:
    given = json.loads(arguments[0])
    # Libraries may print. Their words go to stderr, and descriptor 1 is for rows alone.
    with os.fdopen(os.dup(1), "w") as rows, contextlib.redirect_stdout(sys.stderr):
        os.dup2(2, 1)
        check = Check(
            given["device"],
            given["gpu"] if given["device"] == "cuda" else "",
            SMALL if given["small"] else FULL,
            time.monotonic() + given["limit_s"],
        )
        try:
            part = importlib.import_module(f"headrace.host.validation.parts.{given['part']}")
            for row in part.rows(check):
                print(json.dumps(row.to_dict()), file=rows, flush=True)
        except Exception as error:
            traceback.print_exc()
            print(json.dumps({"error": one_line(error)}), file=rows, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
