"""Networks as schedulers see them: graphs of nodes or cells, and their latencies."""
