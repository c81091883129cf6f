"""Reproduce PREBA (Yeo, Kim, Choi, Rhu): its characterization and evaluation, Figs. 5 to 22."""
