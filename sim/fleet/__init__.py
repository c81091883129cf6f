"""Simulate many equal servers behind a router, in one run."""
