"""Test the curated inputs: what they hold, and that they are the same each time."""

import io
import time

import numpy as np
import pytest
import simplejpeg
import soundfile
from PIL import Image

from headrace.host.compare import curated


def opened(name):
    return Image.open(io.BytesIO(curated.IMAGES[name]()))


def test_there_are_60_images_and_20_sounds():
    assert (len(curated.IMAGES), len(curated.AUDIO)) == (60, 20)


@pytest.mark.parametrize("name", curated.IMAGES)
def test_an_image_is_small_and_one_that_pillow_reads(name):
    data = curated.IMAGES[name]()
    assert data == curated.IMAGES[name]() and len(data) < 400_000
    opened(name).load()


@pytest.mark.parametrize("kind", curated.SUBSAMPLINGS)
def test_a_jpeg_file_has_the_subsampling_of_its_name(kind):
    assert simplejpeg.decode_jpeg_header(curated.IMAGES[f"jpeg-{kind}.jpg"]())[3] == kind


def test_images_have_what_their_names_say():
    assert [opened(f"exif-{turn}.jpg").getexif()[0x0112] for turn in range(1, 9)] == list(range(1, 9))
    assert opened("cmyk.jpg").mode == "CMYK"
    assert opened("jpeg-progressive-420.jpg").info["progressive"] == 1
    assert [
        opened(f"{name}.png").mode for name in ("palette-16", "alpha-soft", "alpha-gray", "bilevel", "gray-16")
    ] == [
        "P",
        "RGBA",
        "LA",
        "1",
        "I;16",
    ]
    assert opened("pixel-1x1.png").size == (1, 1) and opened("ratio-1-to-150.jpg").size == (4, 600)


@pytest.mark.parametrize("name", curated.AUDIO)
def test_a_sound_is_short_and_one_that_libsndfile_reads(name):
    data = curated.AUDIO[name]()
    samples, rate = soundfile.read(io.BytesIO(data))
    assert data == curated.AUDIO[name]() and len(samples) < 2 * rate and np.isfinite(samples).all()


def test_files_do_not_depend_on_the_time_of_day():
    made = curated.AUDIO["voice-float-loud.wav"]()
    time.sleep(1.1)  # libsndfile asks the kernel for the second, so that a test cannot set it
    assert curated.AUDIO["voice-float-loud.wav"]() == made


def test_sounds_have_what_their_names_say():
    def about(name):
        return soundfile.info(io.BytesIO(curated.AUDIO[name]()))

    assert {about(name).samplerate for name in curated.AUDIO} == {8000, 16000, 22050, 32000, 44100, 48000}
    assert {about(name).subtype for name in curated.AUDIO} == {"PCM_16", "PCM_24", "PCM_U8", "FLOAT"}
    assert {about(name).channels for name in curated.AUDIO} == {1, 2}
    assert np.abs(soundfile.read(io.BytesIO(curated.AUDIO["voice-float-loud.wav"]()))[0]).max() > 1
    assert not soundfile.read(io.BytesIO(curated.AUDIO["silence.wav"]()))[0].any()


def test_all_are_written_to_a_folder(tmp_path):
    paths = curated.write(tmp_path)
    assert len(paths) == 80 and all(path.is_file() for path in paths)
    assert (tmp_path / "images" / "cmyk.jpg").read_bytes() == curated.IMAGES["cmyk.jpg"]()
