"""Requests, policies, latency profiles and solvers. Pure: no clock, no thread, no I/O."""

from headrace.batching.errors import HeadraceError, UnknownModel, UnsupportedInput

__all__ = ["HeadraceError", "UnknownModel", "UnsupportedInput"]
