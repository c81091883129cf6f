"""From hardware sources to `.xclbin` containers, and back."""
