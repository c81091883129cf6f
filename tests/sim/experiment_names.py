"""The experiments that repeat a paper's evaluation. The others are studies of this project."""

PAPERS = ("batchmaker", "lazybatching", "parvagpu", "preba", "smdp")
