"""Test a server whose network takes the patches of images of any size, as Qwen2-VL does: a batch joins them."""

import io
import json
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import numpy as np
import pytest
import torch
import transformers
import tritonclient.grpc
import tritonclient.http
from command import headrace
from PIL import Image
from running import serving, write_profile
from tritonclient.utils import InferenceServerException

TRANSPORTS = {"http": tritonclient.http, "grpc": tritonclient.grpc}
SOURCE = '''
import torch

class Vision(torch.nn.Module):
    """The start of Qwen2-VL: patches become vectors, each attends to those of its image, and four are merged."""

    input_shape = {"pixel_values": "1..400+x1176", "image_grid_thw": "3:int64"}

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.embed = torch.nn.Linear(1176, 8)

    def forward(self, pixel_values, image_grid_thw):
        images = self.embed(pixel_values).split(image_grid_thw.prod(1).tolist())
        images = [torch.softmax(each @ each.T, 1) @ each for each in images]
        patches = torch.cat(images)
        merged = patches.reshape(-1, 4, 8).sum(1)
        return {"patches": patches, "merged": merged, "mean": torch.stack([each.mean(0) for each in images])}

class Means(torch.nn.Module):
    def __init__(self, patches):
        super().__init__()
        self.input_shape = {"pixel_values": patches, "image_grid_thw": "3:int64"}

    def forward(self, pixel_values, image_grid_thw):
        return pixel_values.mean(1)

def single():
    return Means("400x1176")

def padded():
    return Means("1..400x1176")

vision = Vision
'''
SIDES = ((100, 80), (150, 120), (64, 64), (57, 113), (33, 300), (120, 150), (90, 170), (56, 28))
OUTPUTS = ("patches", "merged", "mean")


def image_file(width: int, height: int, kind: str = "JPEG", **more) -> bytes:
    held = io.BytesIO()
    few = np.random.default_rng(width).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    Image.fromarray(few).resize((width, height)).save(held, kind, **more)
    return held.getvalue()


FILES = [image_file(*sides, "PNG" if number == 3 else "JPEG") for number, sides in enumerate(SIDES)]


def made_of(*files: bytes) -> dict[str, np.ndarray]:
    """Return the tensors of transformers for the bytes of files."""
    images = [Image.open(io.BytesIO(file)).convert("RGB") for file in files]
    return dict(transformers.Qwen2VLImageProcessor()(images, return_tensors="np"))


def alone(file: bytes) -> dict[str, np.ndarray]:
    """Return the outputs of the network for one file by itself."""
    source: dict = {}
    exec(SOURCE, source)
    made = made_of(file)
    with torch.inference_mode():
        found = source["vision"]()(*(torch.from_numpy(made[name]) for name in ("pixel_values", "image_grid_thw")))
    return {name: tensor.numpy() for name, tensor in found.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the module of the network."""
    made = tmp_path_factory.mktemp("patches")
    (made / "vision.py").write_text(SOURCE)
    return made


@pytest.fixture(scope="module")
def server(folder):
    """Run a server whose batches leave with eight images or 1500 patches. All tests fill its batches."""
    options = ("--policy", "graph", "--window-ms", "60000", "--max-batch", "8", "--max-batch-tokens", "1500")
    with started(folder, *options) as running:
        yield running


def started(folder, *options: str):
    model = ("--model", "qwen=vision:vision", "--profile", str(write_profile(folder, "qwen")))
    return serving(*model, "--processor", "qwen2-vl", *options, models=(), within=folder)


def infer(server, transport, inputs):
    with TRANSPORTS[transport].InferenceServerClient(server.url(transport)) as client:
        given = []
        for name, array, datatype in inputs:
            tensor = TRANSPORTS[transport].InferInput(name, list(array.shape), datatype)
            tensor.set_data_from_numpy(array)
            given.append(tensor)
        answer = client.infer("qwen", given)
        return {name: answer.as_numpy(name) for name in OUTPUTS}


def images(*files: bytes):
    return [("IMAGE", np.array(files, object)[:, None], "BYTES")]


def assert_same(found, *files: bytes) -> None:
    expected = [alone(file) for file in files]
    for name in OUTPUTS:
        np.testing.assert_allclose(found[name], np.concatenate([each[name] for each in expected]), atol=1e-5)


def batches(server) -> dict[int, int]:
    """Return how many batches of each size ran."""
    statistics = json.loads(server.request("GET", "/v2/models/qwen/stats")[2])["model_stats"][0]
    return {each["batch_size"]: each["compute_infer"]["count"] for each in statistics["batch_stats"]}


def test_without_a_limit_a_batch_has_the_tokens_of_the_longest_input(folder):
    files = FILES * 2
    counts = [len(made_of(file)["pixel_values"]) for file in files]
    assert sum(counts) > 400 >= max(counts), "the images would fit into one batch, or into none"
    with started(folder, "--policy", "graph", "--window-ms", "500", "--max-batch", str(len(files))) as running:
        with ThreadPoolExecutor(len(files)) as threads:
            answers = list(threads.map(lambda file: infer(running, "http", images(file)), files))
        assert max(batches(running)) < len(files)
    for file, found in zip(files, answers, strict=True):
        assert_same(found, file)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_images_of_any_sizes_run_in_one_batch_and_each_gets_its_own_answer(server, transport):
    before = batches(server).get(8, 0)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda file: infer(server, transport, images(file)), FILES))
    assert batches(server)[8] == before + 1
    for file, found in zip(FILES, answers, strict=True):
        assert_same(found, file)
    assert len({len(found["patches"]) for found in answers}) > 5


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_request_may_have_several_images_and_its_outputs_are_joined(server, transport):
    assert_same(infer(server, transport, images(*FILES)), *FILES)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tensors_of_several_images_are_split_by_their_grids(server, transport):
    made = made_of(*FILES)
    inputs = [("pixel_values", made["pixel_values"], "FP32"), ("image_grid_thw", made["image_grid_thw"], "INT64")]
    assert_same(infer(server, transport, inputs), *FILES)


def test_a_batch_leaves_when_it_has_all_patches(server):
    """Four images of 400 patches are more than 1500, so three leave, and the fourth waits for others."""
    large, before = image_file(280, 280), batches(server).get(3, 0)
    small = [image_file(280, 56)] * 7  # of 80 patches
    with ThreadPoolExecutor(11) as threads:
        answers = [threads.submit(infer, server, "http", images(large)) for _ in range(4)]
        wait(answers, return_when=FIRST_COMPLETED)
        answers += [threads.submit(infer, server, "http", images(file)) for file in small]
        found = [answer.result() for answer in answers]
    assert batches(server)[3] >= before + 1
    for each in found[:4]:
        assert_same(each, large)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_an_image_with_too_many_patches_is_refused_by_its_header(server, kind):
    file = image_file(700, 500, kind)
    cut = file[: len(file) // 2]  # which only the header tells apart from a whole file
    for data in (file, cut):
        status, error = server.error("POST", "/v2/models/qwen/infer", *photo(data))
        assert status == 400 and error == (
            "the image of 700x500 pixels gives pixel_values of shape [1800, 1176], and model 'qwen' takes [-1, 1176], "
            "at most 400 in place of -1; send an image of another size or give --input-shape a longer size"
        )
    assert server.lives()


def test_an_image_that_the_processor_refuses_is_refused_by_its_header(server):
    status, error = server.error("POST", "/v2/models/qwen/infer", *photo(image_file(2, 500)))
    assert status == 400 and error == (
        "an image of 2x500 is too long for this processor; the longer side may be 200 times the shorter one"
    )
    assert server.lives()


def photo(data: bytes):
    """Return body and headers of a request with one binary input."""
    head = {
        "name": "IMAGE",
        "datatype": "BYTES",
        "shape": [1],
        "parameters": {"binary_data_size": len(data) + 4},
    }
    body = json.dumps({"inputs": [head]}).encode()
    length = str(len(body))
    return body + len(data).to_bytes(4, "little") + data, {"Inference-Header-Content-Length": length}


def test_tensors_that_do_not_agree_are_refused(server):
    made = made_of(FILES[0], FILES[1])
    pixels, grids = made["pixel_values"], made["image_grid_thw"]
    for given, text in (
        ((pixels[:-4], grids), "pixel_values of model 'qwen' has shape .*, and the grids are .*; give a row for each"),
        ((pixels, grids[:1]), "give a row for each patch of the grids"),
        ((pixels, np.array([[1, -2, -24], [1, 8, 10]])), "give a row for each patch of the grids"),
        ((pixels, np.array([[1, 0, 4]])), "give a row for each patch"),
        ((pixels[:6], np.array([[1, 2, 3]])), "makes a row of 'merged' of 4 tokens; 6 tokens are no multiple of that"),
        ((pixels[:0], grids[:0]), "the first dimension of each input is the batch"),
        ((np.concatenate([pixels] * 4), np.array([[1, 2, len(pixels) * 2]])), "with at most 400 in place of -1"),
    ):
        inputs = [("pixel_values", given[0], "FP32"), ("image_grid_thw", given[1], "INT64")]
        with pytest.raises(InferenceServerException, match=text):
            infer(server, "http", inputs)
    assert server.lives()


def test_metadata_have_no_batch_before_the_patches(server):
    metadata = json.loads(server.request("GET", "/v2/models/qwen")[2])
    shapes = {each["name"]: each["shape"] for each in (*metadata["inputs"], *metadata["outputs"])}
    assert shapes == {
        "pixel_values": [-1, 1176],
        "image_grid_thw": [-1, 3],
        "IMAGE": [-1, 1],
        "patches": [-1, 8],
        "merged": [-1, 8],
        "mean": [-1, 8],
    }


def test_the_dpu_makes_the_patches_and_a_batch_has_a_bound(folder):
    options = ("--policy", "work-conserving", "--max-batch-tokens", "200", "--preprocess", "dpu", "--image-cus", "2")
    with started(folder, *options) as server:
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda file: infer(server, "grpc", images(file)), FILES))
        for file, found in zip(FILES, answers, strict=True):
            assert_same(found, file)
        metrics = server.metrics()
        assert 'headrace_dpu_fallbacks_total{reason="NO_CU_ASKED"} 1.0' in metrics  # the PNG file
        assert 'headrace_cu_busy_seconds_total{cu="image_cu_1' in metrics
        status, error = server.error("POST", "/v2/models/qwen/infer", *photo(image_file(280, 280)))
        assert status == 400 and error == (
            "the image of 280x280 pixels gives 400 rows of pixel_values, and a batch of model 'qwen' has at most 200; "
            "send a smaller image or give --max-batch-tokens a larger number"
        )
        made = made_of(image_file(280, 280))
        inputs = [("pixel_values", made["pixel_values"], "FP32"), ("image_grid_thw", made["image_grid_thw"], "INT64")]
        with pytest.raises(InferenceServerException, match="has 400 tokens, and a batch has at most 200; send a short"):
            infer(server, "http", inputs)
        assert server.lives()


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "model, text",
    [
        (
            "vision:single",
            "makes tensors whose shape depends on the image: pixel_values is 1564x1176 float32 of 640x480 pixels and",
        ),
        ("vision:padded", "takes Nx1..400x1176 float32; give --input-shape with pixel_values=1..LONGEST+x1176"),
    ],
)
def test_an_input_of_another_kind_is_refused_at_the_start(folder, model, text):
    command = ["serve", "--model", model, "--processor", "qwen2-vl", "--max-batch=1", "--workers=1"]
    command += [f"--{port}=127.0.0.1:0" for port in ("http", "grpc", "metrics")]
    done = headrace(*command, cwd=folder)
    assert done.returncode == 2 and text in done.stderr, done.stderr


def test_a_network_with_joined_inputs_cannot_run_node_by_node(folder):
    command = ["serve", "--model", "vision:vision", "--policy", "lazy", "--workers=1"]
    done = headrace(*command, cwd=folder)
    assert done.returncode == 2
    assert "a batch joins its inputs, so it cannot run node by node; choose a policy that batches whole" in done.stderr


def test_an_exif_turn_counts_before_the_size(server):
    """An image that is stored on its side gives the patches of the image that is upright."""
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = image_file(100, 80, exif=exif)
    found = infer(server, "http", images(*[turned] * 8))
    assert len(found["patches"]) == 8 * 6 * 8 and len(found["mean"]) == 8
