"""Decoders on measured operators, against measured servers: the 5,221 rows of the package aiconfigurator-core."""
