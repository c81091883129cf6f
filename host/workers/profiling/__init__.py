"""Measure the latency of networks by batch size on this machine's workers."""
