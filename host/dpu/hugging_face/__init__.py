"""This folder finds and reads image processors of Hugging Face, applies them to images, and describes them in words.

`reading.py` makes a spec of a `preprocessor_config.json`; `plain.py`, `patches.py` and `tiled.py` have the classes. The
folder `models` has a `preprocessor_config.json` for each known model, with the settings that change its tensors.
`processors/` says what a spec is.
"""
