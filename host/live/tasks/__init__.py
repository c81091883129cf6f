"""The kinds of task that the live runtime runs on workers."""
