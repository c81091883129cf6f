import cv2
import numpy as np
import pytest

from headrace.batching import UsageError
from headrace.host.demo.inputs.images import ImageFile, demo_images, folder_images


@pytest.fixture(scope="module")
def images() -> list[ImageFile]:
    return demo_images()


def test_the_demo_images_cover_sizes_qualities_and_subsamplings(images):
    assert len(images) >= 30 and len({file.name for file in images}) == len(images)
    sizes = set()
    for file in images:
        pixels = cv2.imdecode(np.frombuffer(file.jpeg, np.uint8), cv2.IMREAD_COLOR)
        sizes.add(pixels.shape)
    assert len(sizes) >= 10
    for sampling in ("4:2:0", "4:2:2", "4:4:4", "4:4:0", "4:1:1"):
        assert any(sampling in file.name for file in images)


def test_they_are_made_once(images):
    assert all(again is file for again, file in zip(demo_images(), images, strict=True))


def test_every_photo_comes_once_before_one_comes_again(images):
    names = [file.name.split()[0] for file in images]
    third = len(names) // 3
    assert len(set(names)) == third and names == 3 * names[:third]


def test_photos_whose_contents_have_a_class_are_marked(images):
    named = {file.picture for file in images}
    assert {"chelsea", "coffee", None} <= named and "moon" not in named


def test_a_folder_of_ones_own_is_taken_in_order_of_name(tmp_path):
    for name in ("b.jpg", "a.JPEG", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    files = folder_images(tmp_path)
    assert [file.name for file in files] == [file.picture for file in files] == ["a.JPEG", "b.jpg"]


def test_a_folder_without_images_is_refused_by_name(tmp_path):
    with pytest.raises(UsageError, match="holds no"):
        folder_images(tmp_path)
    with pytest.raises(UsageError, match="no such folder"):
        folder_images(tmp_path / "missing")
