"""Iteration-level scheduling of models that decode: the seam, the KV cache, and the policies.

Nothing in this package reads a clock, starts a thread or does I/O.
"""
