"""Transformers that decode: their sizes, and how long a step of an inference server takes."""
