"""Describe what a run serves: arrival times, models, lengths and trees."""
