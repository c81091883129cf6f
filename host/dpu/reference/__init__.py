"""Compute on the CPU the results that the compute units must equal. The CPU fallback uses the same code."""
