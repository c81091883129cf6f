"""The papers' evaluations, run again: a plot and a CSV file a figure, and a table of their numbers beside ours."""
