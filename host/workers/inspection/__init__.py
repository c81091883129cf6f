"""Inspect networks in a process of its own, so that the server never imports torch."""
