"""The generators of the reference: each module reads a part of the code and returns Markdown."""
