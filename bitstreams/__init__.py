"""Build `.xclbin` containers from hardware sources, and read them."""
