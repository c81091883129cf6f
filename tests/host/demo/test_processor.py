"""The demo's comparison of an image processor on the DPU with the CPU path."""

import asyncio
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from headrace.bitstreams.build import build_sw_emu
from headrace.host.demo.inputs.images import ImageFile, demo_images
from headrace.host.demo.report.images import processor_line
from headrace.host.demo.runs import processor
from headrace.host.demo.runs.processor import ProcessorCheck, check_processor


@pytest.fixture(scope="module")
def xclbin(tmp_path_factory):
    path = tmp_path_factory.mktemp("dpu") / "dpu.xclbin"
    build_sw_emu(path, image_cus=1)
    return path


def checked(xclbin, images, **more) -> ProcessorCheck:
    return asyncio.run(check_processor(xclbin, images, None, lambda: None, **more))


def test_the_dpu_makes_the_patches_of_the_cpu_path(xclbin):
    found = checked(xclbin, demo_images())
    assert (found.model, found.on_dpu, found.equal) == ("qwen2-vl", 2, 2)
    assert all(shape[1] == 1176 for shape in found.shapes)
    (line,) = processor_line(found)
    assert "made patches of 2 photos" in line and "2 of these tensors equal those of the CPU path" in line


def test_photos_that_cannot_be_compared_are_left_out(xclbin):
    good = demo_images()[0]
    found = checked(xclbin, [ImageFile("damaged", good.jpeg[:500], None), good])
    assert (found.on_dpu, found.equal) == (1, 1)
    file = io.BytesIO()
    Image.open(io.BytesIO(good.jpeg)).resize((64, 48)).save(file, "PNG")
    other = checked(xclbin, [ImageFile("a PNG file, which the CPU reads", file.getvalue(), None)])
    assert other.on_dpu == 0 and processor_line(other) == []


def test_a_difference_counts(xclbin, monkeypatch):
    def wrong(data, spec):
        tensors = processor_preprocess(data, spec)
        return tensors | {"pixel_values": tensors["pixel_values"] + np.float32(1)}

    processor_preprocess = processor.preprocess
    monkeypatch.setattr(processor, "preprocess", wrong)
    found = checked(xclbin, demo_images())
    assert (found.on_dpu, found.equal) == (2, 0)
    assert "0 of these tensors equal" in processor_line(replace(found, model="x"))[0]
