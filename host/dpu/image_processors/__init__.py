"""Image processors of Hugging Face as users meet them: by the names of models, on files, and in words.

`processors.py` has the spec of a processor, and `hugging_face.py` reads one. The folder `models` has a
`preprocessor_config.json` for each known model, with the settings that change its tensors.
"""
