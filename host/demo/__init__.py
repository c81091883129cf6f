"""`headrace demo`: the main job on real input."""
