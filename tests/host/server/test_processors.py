"""Test a server whose models have image processors of Hugging Face: files in, the outputs of a network out."""

import base64
import io
import json

import command
import cv2
import numpy as np
import pytest
import torch
import transformers
import tritonclient.grpc
import tritonclient.http
from PIL import Image
from running import IMAGE_FILE, serving, write_profile
from transformers.image_utils import load_image

TRANSPORTS = {"http": tritonclient.http, "grpc": tritonclient.grpc}
VIT = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
SIGLIP = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 64, "width": 48}, "resample": 2}
NAFLEX = {"image_processor_type": "Siglip2ImageProcessor", "patch_size": 8, "max_num_patches": 12}
PIXELS = np.random.default_rng(5).integers(0, 256, (61, 97, 3), np.uint8)


class Vit(torch.nn.Module):
    """A small vision transformer of transformers."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"hidden_size": 16, "intermediate_size": 32, "image_size": 32, "patch_size": 8}
        config = transformers.ViTConfig(num_hidden_layers=1, num_attention_heads=2, num_labels=3, **sizes)
        self.network = transformers.ViTForImageClassification(config)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.network(pixel_values=pixel_values).logits


class Same(torch.nn.Module):
    """The input itself."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image + 0


class Half(torch.nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return (image + 0).float()


class Patches(torch.nn.Module):
    """The patches of an image, with its number of patches and its grid."""

    def forward(self, pixel_values, pixel_attention_mask, spatial_shapes):
        return {"patches": pixel_values + 0, "count": pixel_attention_mask.sum(1), "grid": spatial_shapes + 0}


def save(network: torch.nn.Module, file, *example: torch.Tensor, by_name: bool = False) -> None:
    """Write the program of torch.export of a network, for batches of up to 8."""
    batch = {0: torch.export.Dim("batch", max=8)}
    names = ("pixel_values", "pixel_attention_mask", "spatial_shapes")[: len(example)]
    given = dict(zip(names, example, strict=True)) if by_name else None
    shapes = dict.fromkeys(names, batch) if by_name else (batch,) * len(example)
    program = torch.export.export(network.eval(), () if by_name else example, given, dynamic_shapes=shapes)
    file.parent.mkdir(exist_ok=True)
    torch.export.save(program, file)


def vit() -> torch.nn.Module:
    torch.manual_seed(3)
    return Vit().eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of models, with and without the file of a processor in their own folders."""
    made = tmp_path_factory.mktemp("models")
    save(vit(), made / "vit" / "model.pt2", torch.zeros(2, 3, 32, 32))
    (made / "vit" / "preprocessor_config.json").write_text(json.dumps(VIT))
    save(Same(), made / "same.pt2", torch.zeros(2, 3, 64, 48))
    (made / "siglip.json").write_text(json.dumps(SIGLIP))
    save(Half(), made / "half" / "half.pt2", torch.zeros(2, 3, 64, 48, dtype=torch.float16))
    (made / "half" / "processor_config.json").write_text(json.dumps({"image_processor": SIGLIP, "tokenizer": {}}))
    example = torch.zeros(2, 12, 192), torch.ones(2, 12, dtype=torch.int32), torch.ones(2, 2, dtype=torch.int64)
    save(Patches(), made / "patches" / "patches.pt2", *example, by_name=True)
    (made / "patches" / "preprocessor_config.json").write_text(json.dumps(NAFLEX))
    return made


@pytest.fixture(scope="module")
def server(folder):
    table = '[[models]]\nname = "{0}"\nsource = "{1}"\nprofile = "{2}"\npolicy = "work-conserving"\n{3}\n'
    sources = {
        "vit": (f"{folder}/vit", ""),
        "same": (f"{folder}/same.pt2", f'processor = "{folder}/siglip.json"'),
        "pillow": (f"{folder}/same.pt2", f'processor = "{folder}/siglip.json"\nengine = "pillow12"'),
        "half": (f"{folder}/half/half.pt2", ""),
        "patches": (f"{folder}/patches/", ""),
        "own": (f"{folder}/vit/model.pt2", 'processor = "none"\nmean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]'),
    }
    file = folder / "server.toml"
    tables = (table.format(name, source, write_profile(folder, name), more) for name, (source, more) in sources.items())
    file.write_text("".join(tables))
    options = ("--config", str(file), "--max-megapixels", "1", "--damaged", "lenient")
    with serving(*options, "--repository", str(folder), models=(), profiled=False) as running:
        yield running


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    return request.param


@pytest.fixture
def client(server, transport):
    with TRANSPORTS[transport].InferenceServerClient(server.url(transport)) as found:
        yield found


def image_file(kind: str, **more) -> bytes:
    held = io.BytesIO()
    Image.fromarray(PIXELS).save(held, kind, **more)
    return held.getvalue()


def theirs(config, *files: bytes) -> dict[str, np.ndarray]:
    """Return the tensors of transformers for the bytes of files."""
    settings = dict(config)
    made = getattr(transformers, settings.pop("image_processor_type"))(**settings)
    return dict(made([load_image(Image.open(io.BytesIO(file))) for file in files], return_tensors="np"))


def images(transport, *files: bytes):
    given = TRANSPORTS[transport].InferInput("IMAGE", [len(files), 1], "BYTES")
    given.set_data_from_numpy(np.array(files, object)[:, None])
    return [given]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WebP"])
def test_files_become_the_tensors_of_transformers(client, transport, kind):
    answer = client.infer("same", images(transport, image_file(kind), IMAGE_FILE))
    expected = theirs(SIGLIP, image_file(kind), IMAGE_FILE)["pixel_values"]
    assert np.array_equal(answer.as_numpy("output"), expected)


def test_a_network_answers_as_it_does_with_the_processor_in_its_folder(client, transport):
    answer = client.infer("vit", images(transport, IMAGE_FILE)).as_numpy("output")
    tensor = theirs(VIT, IMAGE_FILE)["pixel_values"]
    with torch.inference_mode():
        expected = vit()(torch.from_numpy(tensor)).numpy()
    np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-6)
    given = TRANSPORTS[transport].InferInput("pixel_values", list(tensor.shape), "FP32")
    given.set_data_from_numpy(tensor)
    assert np.array_equal(client.infer("vit", [given]).as_numpy("output"), answer)  # a tensor is taken as it is
    own = client.infer("own", images(transport, IMAGE_FILE)).as_numpy("output")
    assert not np.allclose(own, answer, atol=1e-4)  # `none` leaves the file out


def test_an_image_is_upright_and_the_engine_is_the_one_that_is_named(client, transport):
    exif = Image.Exif()
    exif[0x0112] = 6
    file = image_file("JPEG", exif=exif)
    tensor = client.infer("same", images(transport, file)).as_numpy("output")
    assert np.array_equal(tensor, theirs(SIGLIP, file)["pixel_values"])
    assert not np.array_equal(tensor, client.infer("same", images(transport, image_file("JPEG"))).as_numpy("output"))
    other = client.infer("pillow", images(transport, file)).as_numpy("output")
    assert 0 < np.abs(other - tensor).max() < 0.1


def test_a_network_in_half_precision_gets_rounded_values(client, transport):
    found = client.infer("half", images(transport, IMAGE_FILE)).as_numpy("output")
    assert np.array_equal(found, theirs(SIGLIP, IMAGE_FILE)["pixel_values"].astype(np.float16).astype(np.float32))


def test_several_tensors_go_to_the_inputs_of_their_names(client, transport):
    found = client.infer("patches", images(transport, IMAGE_FILE, image_file("PNG")))
    expected = [theirs(NAFLEX, file) for file in (IMAGE_FILE, image_file("PNG"))]
    for row, of_file in enumerate(expected):
        assert np.array_equal(found.as_numpy("patches")[row], of_file["pixel_values"][0])
        assert found.as_numpy("count")[row] == of_file["pixel_attention_mask"].sum()
        assert found.as_numpy("grid")[row].tolist() == of_file["spatial_shapes"][0].tolist()


def photo(server, model, data):
    return server.request("POST", f"/photo/{model}", data)


def test_the_live_page_shows_the_tensor(server):
    status, _, body = photo(server, "same", image_file("PNG"))
    found = json.loads(body)["tensor"]
    assert status == 200 and found["shape"] == [1, 3, 64, 48] and found["unit"] == "cpu"
    shown = cv2.imdecode(np.frombuffer(base64.b64decode(found["png"]), np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    values = theirs(SIGLIP, image_file("PNG"))["pixel_values"][0].transpose(1, 2, 0)
    assert np.array_equal(shown, np.rint((values * 0.5 + 0.5) * 255).astype(np.uint8))
    status, _, body = photo(server, "patches", image_file("PNG"))
    assert status == 200 and json.loads(body)["tensor"]["png"] is None


def test_a_bad_file_fails_alone(server):
    large = io.BytesIO()
    Image.new("RGB", (1200, 900)).save(large, "PNG")
    for data, text in (
        (large.getvalue(), "1200x900 pixels, by its header, are more than --max-megapixels 1"),
        (image_file("PNG")[:40], "Pillow cannot decode this PNG file"),
        (b"GIF89a" + bytes(100), "the body is not JSON"),
    ):
        status, error = server.error("POST", "/v2/models/same/infer", data)
        assert status == 400 and text in error, error
    before = server.metrics()
    changed = bytearray(image_file("PNG"))
    changed[-5] ^= 1  # the checksum of the last chunk
    status, _, body = server.request("POST", "/v2/models/same/infer", bytes(changed))
    assert status == 200 and json.loads(body)["parameters"]["damaged_rows"] == "0"
    assert "headrace_damaged_photos_total 0.0" in before and "headrace_damaged_photos_total 1.0" in server.metrics()
    assert server.lives()


def test_a_client_may_load_a_model_with_a_processor(server, folder):
    profile = write_profile(folder, "loaded").name
    (folder / "bad").mkdir()
    (folder / "bad" / "model.pt2").symlink_to(folder / "vit" / "model.pt2")
    (folder / "bad" / "preprocessor_config.json").write_text(json.dumps({**VIT, "colour": "red"}))
    for table, text in (
        ('source = "./vit"\nprocessor = "clip"', "processor clip: there is no processor 'clip'"),
        ('source = "./bad"', "bad/preprocessor_config.json: ViTImageProcessor: the setting colour is unknown here;"),
    ):
        (folder / "loaded.toml").write_text(f'{table}\npolicy = "serial"\nprofile = "{profile}"\n')
        status, error = server.error("POST", "/v2/repository/models/loaded/load")
        assert status == 400 and text in error, error
    (folder / "loaded.toml").write_text(f'source = "./vit"\npolicy = "serial"\nprofile = "{profile}"\n')
    assert server.request("POST", "/v2/repository/models/loaded/load")[0] == 200
    answers = [server.request("POST", f"/v2/models/{name}/infer", IMAGE_FILE)[2] for name in ("vit", "loaded")]
    values = [json.loads(answer)["outputs"][0]["data"] for answer in answers]
    np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("launch", ["single", "queue"])
def test_units_make_the_tensors_of_jpeg_files_and_the_cpu_those_of_others(folder, launch):
    model = f"{folder}/patches" if launch == "single" else f"{folder}/same.pt2"
    options = ("--model", model, "--preprocess", "dpu", "--image-cus", "1", "--launch", launch)
    options += ("--processor", f"{folder}/siglip.json") if launch == "queue" else ()
    jpeg, png = image_file("JPEG"), image_file("PNG")
    with (
        serving(*options, models=()) as running,
        tritonclient.http.InferenceServerClient(running.url("http")) as client,
    ):
        (name,) = (each["name"] for each in client.get_model_repository_index())
        found = client.infer(name, images("http", jpeg, png, jpeg))
        config = SIGLIP if launch == "queue" else NAFLEX
        output = "output" if launch == "queue" else "patches"
        assert np.array_equal(found.as_numpy(output), theirs(config, jpeg, png, jpeg)["pixel_values"])
        metrics = running.metrics()
        assert 'headrace_dpu_fallbacks_total{reason="NO_CU_ASKED"} 1.0' in metrics  # the PNG file
        assert 'headrace_cu_busy_seconds_total{cu="image_cu_1' in metrics


def test_a_processor_that_does_not_fit_is_one_line_at_the_start(folder):
    words = ["serve", "--model", f"{folder}/vit", "--processor", f"{folder}/siglip.json", "--max-batch=1"]
    words += [f"--{port}=127.0.0.1:0" for port in ("http", "grpc", "metrics")]
    done = command.headrace(*words)
    reading, said = done.stderr.strip().splitlines()
    assert done.returncode == 2 and done.stdout == "" and reading == f"reading {folder}/vit/model.pt2"
    assert said == (
        f"headrace: model 'vit', processor {folder}/siglip.json: SiglipImageProcessor makes pixel_values of 1x3x64x48 "
        "float32, and the input 'pixel_values' takes Nx3x32x32 float32; give the processor of this network"
    )
