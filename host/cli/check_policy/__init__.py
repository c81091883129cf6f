"""The command `headrace check-policy`, and the process in which a policy is checked."""

from headrace.host.cli.check_policy.command import check_policy

__all__ = ["check_policy"]
