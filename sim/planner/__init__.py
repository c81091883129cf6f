"""Find the server that meets a target at the least cost, by simulation."""
