"""LazyBatching (HPCA 2021)."""
