"""The server that meets a target at the least cost, found by simulation."""
