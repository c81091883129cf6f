"""Latencies of hardware that is modelled or measured: the only thing in the simulator that knows any."""
