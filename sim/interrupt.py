"""Let Python handle signals while compiled code runs.

Compiled code never looks whether a signal has come, so Ctrl-C would wait for its end. A call of code that is not
compiled lets Python look.
"""


def look_for_signals() -> None:
    pass
