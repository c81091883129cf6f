"""The command `headrace serve`, which starts one server or a fleet of them."""

from headrace.host.cli.serve.command import serve

__all__ = ["serve"]
