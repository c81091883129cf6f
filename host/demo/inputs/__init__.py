"""The inputs of the demo, and the tensors that the CPU and the DPU make of them before the runs."""
