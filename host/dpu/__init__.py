"""Bytes to tensors: the DPU behind XRT, and the same on the CPU."""
