"""Run tasks on networks in a worker process, with one executor for each kind of task."""
