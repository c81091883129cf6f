"""The command `headrace plan` and what it prints, one module per kind of plan."""

from headrace.host.cli.plan.command import plan

__all__ = ["plan"]
