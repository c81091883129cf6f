"""ParvaGPU (Lee et al., SC 2024): the GPUs that its scenarios need, by its rules and by ours, all simulated."""
