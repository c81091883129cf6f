"""XRT device access, DPU driver, executors, live runtime and command line."""
