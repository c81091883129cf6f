import cv2
import numpy as np
import pytest

from headrace.batching import UsageError
from headrace.host.demo.inputs.images import demo_images, folder_images


def test_the_demo_images_cover_sizes_qualities_and_subsamplings():
    images = demo_images()
    assert len(images) >= 30 and len({file.name for file in images}) == len(images)
    sizes = set()
    for file in images:
        pixels = cv2.imdecode(np.frombuffer(file.jpeg, np.uint8), cv2.IMREAD_COLOR)
        sizes.add(pixels.shape)
    assert len(sizes) >= 10
    for sampling in ("4:2:0", "4:2:2", "4:4:4", "4:4:0", "4:1:1"):
        assert any(sampling in file.name for file in images)


def test_a_folder_of_ones_own_is_taken_in_order_of_name(tmp_path):
    for name in ("b.jpg", "a.JPEG", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    assert [file.name for file in folder_images(tmp_path)] == ["a.JPEG", "b.jpg"]


def test_a_folder_without_images_is_refused_by_name(tmp_path):
    with pytest.raises(UsageError, match="holds no"):
        folder_images(tmp_path)
    with pytest.raises(UsageError, match="no such folder"):
        folder_images(tmp_path / "missing")
