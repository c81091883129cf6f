"""This room says at which addresses servers listen, and which clients they serve."""
