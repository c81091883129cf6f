"""The command `headrace simulate`, which simulates one run or a grid of runs."""

from headrace.host.cli.simulate.command import simulate

__all__ = ["simulate"]
