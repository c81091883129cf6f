"""The command `headrace plan`, with one module for the output of each kind of plan."""

from headrace.host.cli.plan.command import plan

__all__ = ["plan"]
