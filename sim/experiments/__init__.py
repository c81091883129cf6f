"""Run the papers' evaluations, and studies of this project, again: CSV files, plots, and tables of numbers."""
