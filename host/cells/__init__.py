"""Cellular batching on real networks: `cellular` (headrace.batching) drives cells in PyTorch on worker processes."""
