"""The kinds of task that the live runtime runs on workers: whole networks, runs of nodes, and cells."""
