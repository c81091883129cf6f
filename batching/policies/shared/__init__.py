"""Mechanisms that several policies use: queues, batching windows, the batch table and single-input times."""
