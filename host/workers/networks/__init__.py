"""Load, describe and split the networks that are served."""
