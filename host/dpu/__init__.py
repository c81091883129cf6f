"""Turn the bytes of a file into a tensor, on the DPU through XRT or on the CPU."""
