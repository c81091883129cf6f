"""The command `headrace serve`, for one server or a fleet."""

from headrace.host.cli.serve.command import serve

__all__ = ["serve"]
