"""Discrete-event simulation: traffic, accelerator models, experiments. Never imports headrace.host."""
