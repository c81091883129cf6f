"""Run many jobs side by side, on this machine or on a cluster, and keep their results."""
