"""A GPU in slices behind its preprocessing, beyond what the PREBA paper has: on Hopper, under every policy, in unlike
slices."""
