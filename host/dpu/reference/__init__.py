"""Compute on the CPU what the compute units must equal; also the fallback path."""
