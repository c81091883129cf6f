"""Run tasks on networks in a worker process: one executor per kind of task."""
