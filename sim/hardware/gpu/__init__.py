"""Model GPUs cut into MIG slices and the power that they draw."""
