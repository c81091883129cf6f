"""A network is described in another process as it is here, and its errors do not reach this process."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from processes import handled
from small_nets import NET, OTHER, small  # noqa: F401 - a fixture

from headrace.batching import UsageError
from headrace.batching.graphs.torch_graph import from_torch
from headrace.host.dpu.specs import AudioSpec
from headrace.host.live.machine.children import children
from headrace.host.workers.fork_server.client import SHARED
from headrace.host.workers.inspection import parent
from headrace.host.workers.networks import step_models
from headrace.host.workers.networks.models import load_model
from headrace.host.workers.networks.sequence_networks import KINDS, Network
from headrace.host.workers.networks.split.network import node_model

SOURCE = """
import os, signal, sys, time, torch
from headrace.host.dpu.specs import AudioSpec
from headrace.host.workers.networks.zoo.conformer import inputs_of

class Net(torch.nn.Module):
    input_shape = (2,)

    def forward(self, x):
        return x

class Hears(torch.nn.Module):
    transform = AudioSpec(n_mels=40, longest_s=2.0)
    input_shape = inputs_of(transform)
    categories = ["loud", "soft"]

    def forward(self, features, lengths):
        return features.amax((1, 2))[:, None].expand(-1, 2)

def hears():
    return Hears()

class HearsAnything(torch.nn.Module):
    transform = AudioSpec(n_mels=40, longest_s=2.0)

    def forward(self, spectrum, frames):
        return spectrum.amax((1, 2))[:, None]

def hears_anything():
    return HearsAnything()

def leaves():
    os._exit(3)

def is_killed():
    os.kill(os.getpid(), signal.SIGKILL)

def exits():
    sys.exit("enough")

def fails():
    raise ValueError("not today")

def waits():
    open("waits", "w").close()
    time.sleep(600)

def prints():
    print("on stdout")
    print("on stderr", file=sys.stderr)
    return Net()

def forges():
    os.pwrite(3, b"[false, {" + b" " * 100 + b"]", 0)
    os._exit(0)

def needs_torchvision():
    return Net() if "torchvision" in sys.modules else None
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "badnets.py").write_text(SOURCE)
    monkeypatch.chdir(folder)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("source", "shape"), [("squeezenet1_1", None), ("squeezenet1_1", "3x64x96"), (NET, None), (OTHER, None)]
)
def test_a_network_is_described_as_it_is_loaded_here(source, shape):
    assert parent.describe(source, None, shape) == load_model(source, None, shape).described()


def test_a_network_of_sounds_is_described_with_its_transform(own):
    found = parent.describe("badnets:hears")
    assert found == load_model("badnets:hears").described()
    assert found.audio_spec == AudioSpec(n_mels=40, longest_s=2.0) and found.categories == ("loud", "soft")


def test_a_network_of_sounds_need_not_say_its_inputs(own):
    """The inputs are those that its transform makes, under the names of `forward`."""
    found = parent.describe("badnets:hears_anything")
    features, frames = found.inputs
    longest = found.audio_spec.frames(int(2.0 * found.audio_spec.rate))
    assert (features.name, features.shape, features.longest) == ("spectrum", (40, -1), longest)
    assert (frames.name, frames.shape, frames.dtype) == ("frames", (), "int64")
    assert parent.describe("badnets:hears_anything", None, "a=40x1..50,b=scalar:int64").inputs[0].longest == 50


@pytest.mark.parametrize("whole", [False, True])
def test_a_network_is_cut_as_it_is_here(whole):
    found = parent.node_model("squeezenet1_1", 4, None, "3x64x64", name="n", whole=whole)
    assert found == node_model("squeezenet1_1", 4, None, "3x64x64", name="n", whole=whole)


def test_a_graph_is_that_of_torch():
    loaded = load_model("squeezenet1_1", None, "3x64x64")
    found = from_torch(loaded.module, torch.zeros(1, *loaded.input_shape), name="n")
    assert parent.graph("squeezenet1_1", None, "3x64x64", "n") == found


@pytest.mark.parametrize("kind", [*KINDS, "small_steps:sections"])
def test_a_step_model_is_described_as_it_is_here(kind):
    network = Network("n", kind, 16, 20, heads=2)
    told = parent.signature(network)
    assert told == step_models.signature(network)
    if not told.tree:
        assert parent.step_nodes(network, 4) == step_models.step_nodes(network, 4)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("name", "is_one"), [("lstm", True), ("resnet18", False), (NET, False), ("small_steps:stray", True)]
)
def test_step_models_are_told_from_others(name, is_one):
    assert parent.is_step_model(name) == is_one


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("no_such_network", "torchvision has no network 'no_such_network'"),
        ("badnets:leaves", "model 'badnets:leaves': the process that read it was ended by exit status 3"),
        ("badnets:is_killed", "model 'badnets:is_killed': the process that read it was ended by SIGKILL"),
        ("badnets:exits", "--model badnets:exits: calling it failed: SystemExit: enough"),
        ("badnets:fails", "--model badnets:fails: calling it failed: ValueError: not today"),
        ("badnets:forges", "model 'badnets:forges': the data are damaged"),
    ],
)
def test_what_goes_wrong_there_is_an_error_here(own, source, text):
    with pytest.raises(UsageError) as caught:
        parent.describe(source)
    assert str(caught.value).startswith(text)
    assert parent.describe("badnets:prints").name == "badnets:prints", "and nothing else is lost"


def test_what_it_prints_is_seen_and_never_on_stdout(own, capfd):
    parent.describe("badnets:prints")
    shown = capfd.readouterr()
    assert "on stdout" in shown.err and "on stderr" in shown.err and not shown.out


def test_a_network_that_never_ends_is_given_up(own, monkeypatch):
    parent.describe("squeezenet1_1")  # the fork server runs
    monkeypatch.setattr(parent, "LIMIT_S", 0.5)
    with pytest.raises(UsageError, match=r"was not read within 0\.5 s"):
        parent.describe("badnets:waits")
    assert not children(SHARED.pid)


@pytest.mark.parametrize("package", ["torchvision", "torchvision.ops", "torchvision.transforms.v2"])
def test_a_network_of_ones_own_may_import_torchvision(package, own):
    (Path.cwd() / f"imports_{package.replace('.', '_')}.py").write_text(f"import {package}\n{SOURCE}")
    assert parent.describe(f"imports_{package.replace('.', '_')}:prints").inputs[0].shape == (2,)


def test_who_interrupts_the_wait_ends_the_process(own):
    def interrupt():
        while not os.path.exists("waits"):
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with handled(signal.SIGINT, signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        parent.describe("badnets:waits")
    thread.join()
    end = time.monotonic() + 60
    while children(SHARED.pid):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_task_that_is_cancelled_while_its_loop_waits_ends_the_process(own):
    """`asyncio.run` cancels the task in this way at Ctrl-C."""

    async def describe():
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def cancel():
            while not os.path.exists("waits"):
                time.sleep(0.01)
            task.cancel()
            loop.call_soon_threadsafe(lambda: None)

        threading.Thread(target=cancel).start()
        parent.describe("badnets:waits")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(describe())
    end = time.monotonic() + 60
    while children(SHARED.pid):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_torchvision_is_imported_once_for_all_workers_and_only_where_it_is_needed(own):
    code = (
        "from headrace.host.workers.inspection import parent\n"
        "try: parent.describe('badnets:needs_torchvision')\n"
        "except Exception as error: print(error)\n"
        "parent.describe('squeezenet1_1')\n"
        "print(parent.describe('badnets:needs_torchvision').name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert "returned a NoneType" in first and second == "badnets:needs_torchvision"


@pytest.mark.parametrize(
    "module", ["host.server.serve", "host.demo.runs.images", "host.demo.runs.sentences", "host.cli.profile"]
)
def test_who_serves_or_measures_needs_no_torch(module):
    code = f"import sys, headrace.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0
