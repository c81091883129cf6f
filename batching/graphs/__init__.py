"""Networks as schedulers see them: graphs of nodes, graphs of cells, and how long they take."""
