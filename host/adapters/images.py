"""Image processors of transformers that compute by Headrace."""

import importlib
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from headrace.batching import UsageError
from headrace.host.adapters.counts import DPU, LIBRARY, Place
from headrace.host.adapters.device import CPU
from headrace.host.adapters.library import Adapter, is_library_class, loaded
from headrace.host.dpu.hugging_face import names
from headrace.host.dpu.hugging_face.reading import from_hf
from headrace.host.dpu.processors import ProcessorSpec, Size
from headrace.host.dpu.reference.processor import process

PIXELS_GIVEN: Final = "the pixels were given, and the DPU takes JPEG files"
# Settings that hold for how images are read, and for what becomes of the tensors.
NOT_OF_SPEC: Final = frozenset(
    ("return_tensors", "disable_grouping", "device", "input_data_format", "data_format", "do_convert_rgb")
)


class HeadraceImageProcessor(Adapter):
    """An image processor of transformers that computes by Headrace.

    `from_pretrained` makes one. It is an object of the library's class for the model, and has all that such an object
    has. A call gives the same tensors, by the same names and of the same types.

    An image that Headrace does not take, or a setting, goes to the library itself. `counts` has the number of images by
    place.
    """

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        target: str | os.PathLike[str] = CPU,
        **settings: Any,
    ) -> Any:
        """Return the image processor of a model.

        Args:
            pretrained_model_name_or_path: A folder with a `preprocessor_config.json`, as `AutoImageProcessor` takes it,
                or a name of `headrace preprocess processors`, which takes precedence.
            target: "cpu", "sw_emu", "hw_emu", or the path of an .xclbin file. The DPU takes JPEG files of which nobody
                has decoded a pixel; the CPU takes all else.
            settings: Arguments of `AutoImageProcessor.from_pretrained`. Among them are settings that take the place of
                those of the file. Nothing is downloaded unless they say `local_files_only=False`.

        Raises:
            UsageError: There is no such target, or transformers is missing. An emulated target cannot be built.
            OSError, ValueError: transformers does not load the model.
        """
        name = pretrained_model_name_or_path
        known = names.config(name) if isinstance(name, str) and name in names.names() else None
        return loaded(HeadraceImageProcessor, "AutoImageProcessor", name, known, target, settings)

    @staticmethod
    def _knows(kind: type) -> bool:
        """Tell whether Headrace has a class of transformers."""
        return _is_known(kind)

    @staticmethod
    def _class_for(kind: type) -> type:
        """Return the adapter's class for a class of transformers."""
        return _adapter(kind)

    # ---- Steps of the library ----

    def fetch_images(self, image_url_or_urls: Any) -> Any:
        """Return images. The JPEG file of a path stays undecoded for the DPU."""
        if self._work.device is not None and isinstance(image_url_or_urls, str):
            opened = _jpeg().opened(image_url_or_urls)
            if opened is not None:
                return opened
        return super().fetch_images(image_url_or_urls)  # type: ignore[misc]

    def process_image(self, image: Any, *arguments: Any, **settings: Any) -> Any:
        """Return the pixels of one image, or a JPEG file for the DPU."""

        def decoded() -> Any:
            path = getattr(image, _jpeg().PATH, None)
            read = image if path is None else super(HeadraceImageProcessor, self).fetch_images(path)  # type: ignore[misc]
            return super(HeadraceImageProcessor, self).process_image(read, *arguments, **settings)  # type: ignore[misc]

        if self._work.device is not None:
            convert = arguments[0] if arguments else settings.get("do_convert_rgb")
            if (file := _jpeg().unread(image, convert, decoded)) is not None:
                return file
        return decoded()

    def _preprocess(self, images: Sequence[Any], *arguments: Any, **settings: Any) -> Any:
        """Return the tensors of images that the library has read, or of JPEG files."""
        nested = bool(images) and isinstance(images[0], list | tuple)
        samples = images if nested else [[image] for image in images]
        try:
            return self._by_headrace(samples, arguments, settings)
        except UsageError as error:
            self._work.counts.add([(LIBRARY, str(error))] * sum(map(len, samples)))
        read = [[_decoded(image) for image in sample] for sample in samples]
        flat = read if nested else [sample[0] for sample in read]
        return super()._preprocess(flat, *arguments, **settings)  # type: ignore[misc]

    def _by_headrace(
        self, samples: Sequence[Sequence[Any]], arguments: tuple[Any, ...], settings: Mapping[str, Any]
    ) -> Any:
        """Return the tensors. Raises UsageError for what the library does instead."""
        batches = _batches()
        name = self.library_class.__name__
        batch = batches.BATCHES[name]
        spec = _spec(name, settings, NOT_OF_SPEC | batch.without_effect)
        flat = [image for sample in samples for image in sample]
        if not flat or not all(samples):
            raise UsageError("there is no image; give at least one in each sample")
        plans = [spec.plan(_size(image)) for image in flat]
        tensors, places = self._tensors(flat, spec)
        made = iter([batches.Made(each, plan) for each, plan in zip(tensors, plans, strict=True)])
        call = batches.Call(self, [[next(made) for _ in sample] for sample in samples], settings, arguments)
        entries, added = batch.tensors(call), batch.added(call)
        base = importlib.import_module("transformers.image_processing_base")
        feature = base.BatchFeature(data=entries, tensor_type=settings.get("return_tensors"))
        for key, value in added.items():
            feature[key] = value
        self._work.counts.add(places)
        return feature

    def _tensors(self, images: Sequence[Any], spec: ProcessorSpec) -> tuple[list[dict[str, Any]], list[Place]]:
        """Return the tensors of each image by name, and for each image its place."""
        device = self._work.device
        files = [image.data for image in images if _is_file(image)]
        done = iter([] if device is None else device.process(files, spec))
        pixels_given = None if device is None else PIXELS_GIVEN
        tensors, places = [], []
        for image in images:
            found = next(done) if _is_file(image) else pixels_given
            if found is None or isinstance(found, str):
                places.append((CPU, found))
                found = process(_pixels(_decoded(image)), spec)
            else:
                places.append((DPU, None))
            tensors.append({key: _batches().as_torch(value) for key, value in found.items()})
        return tensors, places


class _OfLibrary(HeadraceImageProcessor):
    """An adapter for a class that Headrace does not have. The library does all of its work."""

    def fetch_images(self, image_url_or_urls: Any) -> Any:
        return super(HeadraceImageProcessor, self).fetch_images(image_url_or_urls)  # type: ignore[misc]

    def preprocess(self, images: Any, *arguments: Any, **settings: Any) -> Any:
        made = super().preprocess(images, *arguments, **settings)  # type: ignore[misc]
        number = sum(len(each) if getattr(each, "ndim", 0) == 4 else 1 for each in _flat(images))
        self._work.counts.add([(LIBRARY, f"{self.library_class.__name__} has no counterpart in Headrace")] * number)
        return made

    def process_image(self, image: Any, *arguments: Any, **settings: Any) -> Any:
        return super(HeadraceImageProcessor, self).process_image(image, *arguments, **settings)  # type: ignore[misc]

    def _preprocess(self, images: Any, *arguments: Any, **settings: Any) -> Any:
        return super(HeadraceImageProcessor, self)._preprocess(images, *arguments, **settings)  # type: ignore[misc]


def _is_known(kind: type) -> bool:
    """Tell whether Headrace has the class. It has those that compute by torchvision."""
    return (
        is_library_class(kind)
        and kind.__name__ in _batches().BATCHES
        and issubclass(kind, importlib.import_module("transformers.image_processing_backends").TorchvisionBackend)
    )


@cache
def _adapter(kind: type) -> type:
    """Return the subclass for a class of transformers. It has its name, which files of settings have."""
    base = HeadraceImageProcessor if _is_known(kind) else _OfLibrary
    fields = {"library_class": kind, "__doc__": kind.__doc__, "__module__": __name__}
    return type(kind.__name__, (base, kind), fields)


def _batches() -> Any:
    """Return the module that needs torch."""
    return importlib.import_module("headrace.host.adapters.batches")


def _jpeg() -> Any:
    """Return the module that needs Pillow."""
    return importlib.import_module("headrace.host.adapters.jpeg")


def _spec(name: str, settings: Mapping[str, Any], leave_out: frozenset[str]) -> ProcessorSpec:
    """Return the spec of the settings of a call. Raises UsageError for those that Headrace does not have."""
    device = settings.get("device")
    if device is not None and str(device) != "cpu":
        raise UsageError(f"device is {str(device)!r}; Headrace computes on the CPU or the DPU")
    config = {key: _plain(value) for key, value in settings.items() if key not in leave_out and value is not None}
    return from_hf({**config, "image_processor_type": name})


def _plain(value: Any) -> Any:
    """Return a setting as a file has it."""
    if type(value).__name__ == "SizeDict":
        return {side: length for side, length in dict(value).items() if length is not None}
    if type(value).__name__ == "InterpolationMode":  # of torchvision
        return importlib.import_module("transformers.image_utils").torch_pil_interpolation_mapping[value].value
    return list(value) if isinstance(value, tuple) else value


def _is_file(image: Any) -> bool:
    return hasattr(image, "decoded")


def _decoded(image: Any) -> Any:
    return image.decoded() if _is_file(image) else image


def _size(image: Any) -> Size:
    """Return the size of a JPEG file or of pixels, shape (3, rows, columns). Raises UsageError for other pixels."""
    if _is_file(image):
        size: Size = image.size
        return size
    if str(image.dtype) != "torch.uint8" or image.ndim != 3 or image.shape[0] != 3 or 0 in image.shape:
        shape = tuple(image.shape)
        raise UsageError(f"an image is {image.dtype} with shape {shape}; Headrace takes uint8 (3, rows, columns)")
    if image.device.type != "cpu":
        raise UsageError(f"an image is on {image.device}; Headrace takes those in the memory of the host")
    return Size(image.shape[2], image.shape[1])


def _pixels(image: Any) -> Any:
    """Return an image (3, rows, columns) of torch as an array (rows, columns, 3)."""
    return np.ascontiguousarray(image.permute(1, 2, 0).numpy())


def _flat(images: Any) -> list[Any]:
    if isinstance(images, list | tuple):
        return [each for image in images for each in _flat(image)]
    return [images]
