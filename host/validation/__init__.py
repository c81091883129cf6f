"""Measure on real workers what the models predict, and write both next to each other.

scripts/gpu_check runs all parts, and `headrace reproduce lazybatching --figure 17` the live one."""
