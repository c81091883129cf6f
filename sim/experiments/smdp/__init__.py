"""Reproduce SMDP-based dynamic batching (ICC 2023)."""
