"""Discrete-event simulation: traffic, models of accelerators, and experiments. It never imports headrace.host."""
