"""This package plans servers of models that decode: GPUs, cores or compute units, and the policy."""
