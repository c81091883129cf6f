"""Plan ParvaGPU's scenarios (Lee et al., SC 2024): the GPUs that they need, by its rules and by ours, all simulated."""
