"""Latencies of modelled and measured hardware. No other room of the simulator knows any."""
