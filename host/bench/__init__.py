"""The load generator: what to send and when, the clients that send it, their processes, and what came of it."""
