"""Model a server: accelerator, preprocessing, memory limits and cost."""
