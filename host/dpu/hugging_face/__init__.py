"""Read the image processor of a model on Hugging Face."""

from headrace.host.dpu.hugging_face.reading import CLASSES, COMMON, REFUSED, from_hf

__all__ = ["CLASSES", "COMMON", "REFUSED", "from_hf"]
