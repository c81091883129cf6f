"""Compare a front end, which makes the tensors of images or audio, with transformers, and say where they first differ.

A front end is compared by its tensors alone, or, if its steps are known, stage by stage with the reference's input of
each stage. `comparison.py` runs it, and `report.py` writes the page.
"""
