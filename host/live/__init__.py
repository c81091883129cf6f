"""The live runtime: it drives any policy by a clock and runs its tasks on workers."""
