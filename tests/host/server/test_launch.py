"""Test `serve --launch queue`: the DPU's image units take images of one kind of tensor from their queues."""

import asyncio

import numpy as np
import pytest

from headrace.batching import UsageError
from headrace.bitstreams.build import build_sw_emu
from headrace.host.demo.inputs.images import demo_images
from headrace.host.dpu.preprocessor import Launch
from headrace.host.dpu.reference.image import preprocess
from headrace.host.dpu.specs import Damaged, ImageSpec
from headrace.host.server.group import Preprocessors


def test_units_with_a_queue_serve_one_kind_of_tensor(tmp_path):
    path = tmp_path / "dpu.xclbin"
    build_sw_emu(path, image_cus=1)
    jpeg = demo_images()[0].jpeg

    async def body() -> None:
        async with Preprocessors(lambda: path, 100, Damaged.STRICT, False, Launch.QUEUE) as preprocessors:
            made = await preprocessors.of("dpu", ImageSpec())
            assert await preprocessors.of("dpu", ImageSpec()) is made
            done = await made.process(jpeg)
            assert done.unit.startswith("image_cu_1.") and np.array_equal(done.tensor, preprocess(jpeg, ImageSpec()))
            with pytest.raises(UsageError, match="--launch single"):
                await preprocessors.of("dpu", ImageSpec(crop_width=200))
            other = await preprocessors.of("cpu", ImageSpec(crop_width=200))
            assert (await other.process(jpeg)).unit == "cpu"

    asyncio.run(body())
