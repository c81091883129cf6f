"""Compiled code never looks whether a signal has come, so Ctrl-C would wait for its end. Calling what is not compiled,
as this is, lets Python look."""


def look_for_signals() -> None:
    pass
