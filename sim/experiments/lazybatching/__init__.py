"""Reproduce LazyBatching (HPCA 2021)."""
