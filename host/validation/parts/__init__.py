"""The parts of a check: each module has a function `rows`, which measures and yields rows."""
