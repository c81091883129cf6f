"""Inputs of SGLang whose images and sounds are ready: tokens, and the tensors of a processor of transformers.

SGLang takes one item for all images of a prompt and one for all sounds. An item is a dictionary:

- `format` is "processor_output", and `modality` is IMAGE or AUDIO.
- The tensors have their names of transformers. Those of several images are joined, as transformers joins them.
- `input_ids` has the tokens. Some of SGLang's processors read them here, and would otherwise decode and encode them.
- `offsets` has the first and the last place of each run of placeholders among the tokens. Both belong to the run.
- `hash` is a number of 64 bits that stands for the tensors in SGLang's caches. Without it SGLang computes its own.

SGLang splits an item of several images into one for each, and gives each a hash of its own.

Source: SGLang 0.5.23, multimodal/processors/base_processor.py; pull requests 25941 and 26101.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from headrace.batching import UsageError

FORMAT: Final = "processor_output"
# Tensors that belong to the tokens.
OF_TOKENS: Final = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
KINDS: Final = ("image", "audio")


def sglang_inputs(processor: Any, text: str, images: Any = None, audio: Any = None, **settings: Any) -> dict[str, Any]:
    """Return the arguments of `sglang.Engine.generate` for a prompt with images, sounds or both.

    Args:
        processor: The processor of a whole model, as `AutoProcessor.from_pretrained` returns it. After
            `register_processors`, Headrace makes its tensors.
        text: The prompt with a placeholder for each image and sound, as the processor's `apply_chat_template` writes
            it.
        images: Images as the processor takes them, in the order of their placeholders.
        audio: Samples at the rate of the processor, for each sound.
        settings: Other arguments of the processor.

    Returns:
        `input_ids`, with each placeholder as often as SGLang needs it; and `image_data`, `audio_data` or both, a list
        with one item each.

    Raises:
        UsageError: Images or sounds are given, and the tokens or the processor have no placeholder for them.
        ValueError, TypeError: transformers refuses the inputs.
    """
    given = {kind: value for kind, value in zip(KINDS, (images, audio), strict=True) if value is not None}
    named = {"images" if kind == "image" else kind: value for kind, value in given.items()}
    made = processor(text=[text], return_tensors="pt", **named, **settings)
    tokens = [int(token) for token in made["input_ids"][0]]
    inputs: dict[str, Any] = {"input_ids": tokens}
    tensors = {name: value for name, value in made.items() if name not in OF_TOKENS}
    for kind in given:
        offsets = runs(tokens, _placeholder(processor, kind))
        of_kind = _names(processor, kind, tensors, len(given) > 1)
        inputs[f"{kind}_data"] = [item(kind, {name: tensors[name] for name in of_kind}, tokens, offsets)]
    return inputs


def item(
    kind: str, tensors: Mapping[str, Any], tokens: Sequence[int], offsets: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """Return an item of SGLang for all images, or all sounds, of a prompt.

    Args:
        kind: "image" or "audio".
        tensors: Tensors of PyTorch, or lists of them, by the names of transformers.
        tokens: The tokens of the prompt.
        offsets: The first and the last place of each image or sound among them.

    Raises UsageError if there is no place, because SGLang would then leave the images out.
    """
    if not offsets:
        raise UsageError(f"the text has no placeholder for the {kind}; write it by apply_chat_template")
    made = {"format": FORMAT, "modality": kind.upper(), **tensors, "input_ids": list(tokens), "offsets": list(offsets)}
    if len(offsets) == 1:  # SGLang forgets the hash of an item that it splits
        made["hash"] = identity(tensors)
    return made


def identity(tensors: Mapping[str, Any]) -> int:
    """Return a number of 64 bits that differs for other names, types, shapes or values. It is not negative."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        for value in _flat(tensors[name]):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
            digest.update(np.ascontiguousarray(value).data)
    return int.from_bytes(digest.digest()[:8], "big")


def runs(tokens: Sequence[int], placeholder: int) -> list[tuple[int, int]]:
    """Return the first and the last place of each run of a token.

    Example: `runs([1, 2, 2, 3, 2], 2)` is `[(1, 2), (4, 4)]`."""
    places = np.flatnonzero(np.asarray(tokens) == placeholder)
    pieces = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1) if len(places) else []
    return [(int(piece[0]), int(piece[-1])) for piece in pieces]


def _flat(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the tensors of a value, which may be a list of lists, as arrays in C order."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from _flat(each)
        return
    tensor = value.detach().cpu().contiguous()
    if str(tensor.dtype) == "torch.bfloat16":  # which NumPy does not have
        import torch

        tensor = tensor.view(torch.int16)
    yield tensor.numpy()


def _placeholder(processor: Any, kind: str) -> int:
    number = getattr(processor, f"{kind}_token_id", None)
    if number is None and (text := getattr(processor, f"{kind}_token", None)) is not None:
        number = processor.tokenizer.convert_tokens_to_ids(text)
    if number is None:
        raise UsageError(f"{type(processor).__name__} names no placeholder for the {kind}; give a model that has one")
    return int(number)


def _names(processor: Any, kind: str, tensors: Mapping[str, Any], has_both: bool) -> list[str]:
    """Return the names of the tensors of a kind. Of a prompt with both, the image processor tells which are its own."""
    of_images = processor.image_processor.model_input_names if has_both else ()
    return [name for name in tensors if not has_both or (name in of_images) == (kind == "image")]
