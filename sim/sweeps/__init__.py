"""Many runs of work, side by side on this machine or on a cluster, and what was found kept."""
