"""Cut a network into nodes, so that requests can join and leave in the middle of it."""
