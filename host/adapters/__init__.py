"""Image processors and feature extractors that take the place of those of transformers.

An adapter is an object of the library's class for the model, in a subclass that computes the tensors by Headrace. All
else stays the library's: the settings, the checks of arguments, and how images are read and padded.
"""
