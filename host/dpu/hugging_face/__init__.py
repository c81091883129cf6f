"""Image processors of Hugging Face: by the names of models, from files, on images, and in words.

`reading.py` makes a spec of a `preprocessor_config.json`; `plain.py`, `patches.py` and `tiled.py` have the classes. The
folder `models` has a `preprocessor_config.json` for each known model, with the settings that change its tensors.
`processors/` says what a spec is.
"""
