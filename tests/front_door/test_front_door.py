"""`import headrace` is the public interface: quick to import, complete, and the same as the command line."""

import ast
import asyncio
import inspect
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import headrace as command

import headrace

ROOT = Path(__file__).parents[2]
RUN = {"model": "resnet50", "requests": 300, "rate_rps": 900.0, "seed": 3}
WORDS = ("simulate", "--model", "resnet50", "--requests", "300", "--rate-rps", "900", "--seed", "3", "--json")
NETWORK = """
import torch

class Double(torch.nn.Module):
    input_shape = (4,)

    def forward(self, x):
        return 2 * x
"""


def run_python(program: str, *arguments: object, folder: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def same(body: dict) -> dict:
    """Return a result without what differs from run to run."""
    return {name: value for name, value in body.items() if name != "wall_s"}


# ---- the names ----


def source_docstring(found: type) -> str | None:
    """Return a class's docstring from its source."""
    path = ROOT / found.__module__.removeprefix("headrace.").replace(".", "/")
    body = ast.parse(path.with_suffix(".py").read_text()).body
    (node,) = (each for each in body if isinstance(each, ast.ClassDef) and each.name == found.__name__)
    return ast.get_docstring(node)


@pytest.mark.parametrize("name", headrace.__all__)
def test_a_public_name_is_there_and_documented(name):
    found = getattr(headrace, name)
    if inspect.isclass(found):
        text = found.__doc__
        assert text is not None and inspect.cleandoc(text) == source_docstring(found)
    elif inspect.isfunction(found) or inspect.ismodule(found):
        text = found.__doc__
    else:  # a constant
        text = (re.search(rf'^    "{name}": "[\w.]+",  # (.+)$', inspect.getsource(headrace), re.MULTILINE) or "..")[1]
    assert (text and len(text.split()) >= 4) or name == "__version__", text


@pytest.mark.parametrize("name", dir(headrace.policies))
def test_a_policy_shows_its_docstring(name):
    found = getattr(headrace.policies, name)
    assert inspect.cleandoc(found.__doc__) == source_docstring(found)


def test_each_public_name_is_explained_in_the_list():
    listed = re.findall(r'^    "(\w+)": "[\w.]+",(  # .+)?$', inspect.getsource(headrace), re.MULTILINE)
    assert {name for name, _ in listed} | {"__version__", "policies"} == set(headrace.__all__)
    assert [name for name, comment in listed if not comment] == []


def test_dir_lists_the_public_names_and_nothing_else():
    assert dir(headrace) == sorted(headrace.__all__)
    assert len(set(headrace.__all__)) == len(headrace.__all__)
    assert {"Lazy", "Graph", "Preba"} <= set(dir(headrace.policies))


def test_a_name_that_is_not_there_is_refused_with_the_way_to_the_names():
    with pytest.raises(AttributeError) as raised:
        _ = headrace.simulte
    assert str(raised.value) == (
        "module 'headrace' has no attribute 'simulte'; the public names are in headrace.__all__"
    )
    with pytest.raises(
        AttributeError, match=r"module 'headrace.policies' has no attribute 'Lazzy'; choose from Serial, "
    ):
        _ = headrace.policies.Lazzy
    assert not hasattr(headrace, "numpy")


def test_a_type_checker_and_the_import_at_run_time_see_the_same_names():
    source = inspect.getsource(headrace)
    checked = source[source.index("if TYPE_CHECKING:") : source.index("__all__ =")]
    names = re.findall(r" as (\w+)$|^    (\w+) = |^    (__version__):", checked, re.MULTILINE)
    assert {a or b or c for a, b, c in names} == set(headrace.__all__)


IMPORT = """
import sys, time
began = time.process_time()
import headrace
took = time.process_time() - began
heavy = {"numpy", "torch", "cv2", "matplotlib", "scipy", "typer"}
print(took, *sorted(heavy & set(sys.modules)), *(each for each in sys.modules if each.startswith("headrace.")))
"""


def test_the_import_is_quick_and_loads_nothing_else(tmp_path):
    found = [run_python(IMPORT, folder=tmp_path).split() for _ in range(3)]
    assert [each[1:] for each in found] == [[], [], []]
    assert min(float(each[0]) for each in found) <= 0.05


def test_values_and_policies_are_made_without_torch(tmp_path):
    program = (
        "import headrace, sys\n"
        "headrace.policies.Graph(window_ms=2).build, headrace.Task, headrace.ModelGraph, headrace.simulate\n"
        "print(*{'torch', 'cv2', 'matplotlib', 'typer'} & set(sys.modules))"
    )
    assert run_python(program, folder=tmp_path).split() == []


# ---- simulate and sweep ----


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"policy": "lazy"}, ["--policy", "lazy"]),
        ({"policy": "graph", "window_ms": 3}, ["--policy", "graph", "--set", "window_ms=3"]),
        ({"policy": headrace.policies.Lazy(coverage=0.8)}, ["--policy", "lazy", "--set", "coverage=0.8"]),
        ({"policy": "graph", "on": headrace.Npu(2)}, ["--policy", "graph", "--npus", "2"]),
        (
            {
                "model": "mobilenet_v3_small",
                "policy": "preba",
                "on": headrace.MigGpu("a100-40gb", "1g.5gb:7"),
                "preprocess": "dpu:4",
            },
            "--model mobilenet_v3_small --policy preba --accelerator a100-40gb --partition 1g.5gb:7 --preprocess dpu:4",
        ),
        ({"policy": "graph", "fleet": headrace.Fleet(3, "random")}, "--policy graph --servers 3 --router random"),
        ({"policy": "graph", "traffic": "mmpp", "burst_s": 0.2}, "--policy graph --traffic mmpp --burst-s 0.2"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_run_is_the_one_of_the_command_line(arguments, words):
    more = words.split() if isinstance(words, str) else words
    keep = WORDS if "--model" not in more else (*WORDS[:1], *WORDS[3:])
    of_command = json.loads(command(*keep, *more).stdout)
    of_python = headrace.simulate(**{**RUN, **arguments}).to_dict()
    assert same(json.loads(json.dumps(of_python))) == same(of_command)


def test_the_parts_of_a_run_may_be_objects_or_single_settings():
    apart = headrace.simulate(**RUN, policy="graph", slo_ms=20)
    workload = headrace.Workload("resnet50", slo_ms=20, traffic=headrace.Poisson(rate_rps=900, requests=300))
    whole = headrace.simulate(workload=workload, policy=headrace.policies.Graph(), seed=3)
    only_traffic = headrace.simulate("resnet50", workload=headrace.Poisson(900, 300), policy="graph", slo_ms=20, seed=3)
    assert same(apart.to_dict()) == same(whole.to_dict()) == same(only_traffic.to_dict())


def test_a_sweep_has_the_runs_of_simulate_in_their_order():
    sweep = headrace.sweep(**{**RUN, "rate_rps": [300, 900]}, policy=["lazy", "graph", "serial"])
    assert len(sweep) == 6 and sweep.varied == ["policy", "rate_rps"]
    for run in sweep:  # made in several processes
        alone = headrace.simulate(**{**RUN, **run.varied})
        assert run.error is None and same(run.result.to_dict()) == same(alone.to_dict())
    assert [(run.varied["policy"], run.varied["rate_rps"]) for run in sweep] == [
        (policy, rate) for policy in ("lazy", "graph", "serial") for rate in (300, 900)
    ]
    rows = sweep.to_dicts()
    assert rows[3]["p99_ms"] == sweep[3].result.latency_ms["p99"] and rows[3]["policy"] == "graph"


def test_a_sweep_is_the_grid_of_the_command_line(tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text('model = "resnet50"\nrequests = 300\nseed = 3\npolicy = ["lazy", "graph"]\nrate-rps = [300, 900]\n')
    runs = json.loads(command("simulate", "--grid", grid, "--json").stdout)
    sweep = headrace.sweep(**{**RUN, "rate_rps": [300, 900]}, policy=["lazy", "graph"])
    ours = [{**run.result.to_dict(), "settings": 0, "warnings": 0} for run in sweep]
    assert [same(json.loads(json.dumps(each))) for each in ours] == [
        same({**each["result"], "settings": 0, "warnings": 0}) for each in runs
    ]


@pytest.mark.parametrize(
    "values", [range(200, 401, 100), (200, 300, 400), np.array([200, 300, 400]), np.linspace(200, 400, 3)]
)
def test_several_values_may_be_any_sequence_of_numbers(values):
    sweep = headrace.sweep("resnet50", policy="graph", requests=50, rate_rps=values)
    assert [row["rate_rps"] for row in sweep.to_dicts()] == [200, 300, 400]
    assert {type(row["rate_rps"]) for row in sweep.to_dicts()} <= {int, float}


@pytest.mark.parametrize("number", [np.int64(200), np.float64(200), np.float32(200)])
def test_a_setting_may_be_a_number_of_numpy(number):
    result = headrace.simulate("resnet50", policy="graph", requests=np.int64(50), rate_rps=number)
    assert json.loads(json.dumps(result.to_dict()))["settings"]["rate_rps"] == 200


def test_rows_tell_objects_of_settings_apart():
    graph, bursty = headrace.policies.Graph, headrace.Bursty(300, 100)
    sweep = headrace.sweep(
        "resnet50", requests=50, policy=[graph(), graph(window_ms=20)], on=[headrace.Npu(), headrace.Npu(2)]
    )
    assert [(row["on"], row["policy"]) for row in sweep.to_dicts()] == [
        ("Npu", "graph"),
        ("Npu", "graph(window_ms=20)"),
        ("Npu(npus=2)", "graph"),
        ("Npu(npus=2)", "graph(window_ms=20)"),
    ]
    (row,) = headrace.sweep(policy="graph", workload=[headrace.Workload("gnmt", traffic=bursty)]).to_dicts()
    assert row["workload"] == "Workload(model=gnmt, Bursty(rate_rps=300, requests=100))"


def test_a_run_that_cannot_be_keeps_its_place_and_the_reason():
    slices = headrace.MigGpu("a100-40gb", "1g.5gb:7")
    sweep = headrace.sweep("vgg16", on=slices, policy="graph", requests=100, max_batch=[16, 4096])
    good, bad = sweep
    assert good.error is None and good.result.finished == 100
    assert bad.result is None and "vgg16 takes 101.5 GiB at batch 4096" in bad.error
    assert sweep.to_dicts()[1] == {"max_batch": 4096, "error": bad.error}
    (line,) = sweep.plot("p99_ms").axes[0].lines
    assert np.isnan(line.get_ydata()).tolist() == [False, True]


OWN = """
import sys
from dataclasses import dataclass
import headrace

{place}
if __name__ == "__main__":
    sweep = headrace.sweep("resnet50", policy=[Own(window_ms=each) for each in (1, 2, 3, 4, 5, 6)], requests=100)
    print(*(row["policy"] for row in sweep.to_dicts()))
"""
CLASS = """
@dataclass(frozen=True)
class Own:
    window_ms: float = 0.0

    def build(self, context):
        return headrace.policies.Graph(window_ms=self.window_ms).build(context)
"""


@pytest.mark.parametrize("place", ["script", "module"])
def test_a_sweep_takes_policies_of_the_script_and_of_a_module_in_its_folder(place, tmp_path):
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "own_policy.py").write_text("from dataclasses import dataclass\nimport headrace\n" + CLASS)
    (folder / "script.py").write_text(OWN.format(place=CLASS if place == "script" else "from own_policy import Own"))
    done = subprocess.run(
        [sys.executable, folder / "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    name = "__main__" if place == "script" else "own_policy"
    assert done.stdout.split() == [f"{name}:Own(window_ms={each})" for each in range(1, 7)], done.stderr


def test_everything_works_where_an_event_loop_runs():
    async def notebook():
        alone = headrace.simulate(**RUN, policy="graph")
        many = headrace.sweep(**{**RUN, "rate_rps": [100, 200, 300, 400, 900]}, policy="graph")
        return alone, many

    alone, many = asyncio.run(notebook())
    assert same(many[4].result.to_dict()) == same(alone.to_dict())


# ---- results ----


@pytest.fixture(scope="module")
def sweep():
    return headrace.sweep("resnet50", policy=["lazy", "graph"], requests=100, rate_rps=[200, 400])


def test_results_are_values(sweep):
    again = pickle.loads(pickle.dumps(sweep))
    assert again == sweep
    result = sweep[0].result
    with pytest.raises(AttributeError):
        result.finished = 3
    assert result.metric("p99_ms") == result.latency_ms["p99"]
    assert result.metric("utilization") == result.utilization
    assert result.metric("energy_j") is None


def test_a_table_without_pandas_says_what_to_install(sweep, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(headrace.UsageError) as raised:
        sweep.to_pandas()
    assert str(raised.value) == "a DataFrame needs pandas: pip install pandas; to_dicts() needs nothing"


def test_a_table_has_the_rows(sweep, monkeypatch):
    class Pandas:
        DataFrame = staticmethod(list)

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    assert sweep.to_pandas() == sweep.to_dicts()


def test_a_plot_is_written_as_a_picture(sweep, tmp_path):
    figure = sweep.plot("p99_ms", path=str(tmp_path / "sweep.png"))
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("rate_rps", "p99_ms")
    assert [line.get_label() for line in axes.lines] == ["lazy", "graph"]
    assert list(axes.lines[0].get_ydata()) == [run.result.latency_ms["p99"] for run in sweep[:2]]
    assert figure._repr_png_().startswith(b"\x89PNG")  # as Jupyter asks
    sweep.plot("utilization", x="policy", path=str(tmp_path / "sweep.svg"))
    assert "<svg" in (tmp_path / "sweep.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("p42_ms",), "there is no metric 'p42_ms'; choose from mean_ms, p50_ms, "),
        (("latency_ms",), "there is no metric 'latency_ms'"),
        (("settings",), "there is no metric 'settings'"),
        (("p99_ms", "slo_ms"), "plot: x is 'slo_ms'; choose from the settings that vary: policy, rate_rps"),
    ],
)
def test_an_unknown_metric_or_axis_is_refused(arguments, words, sweep):
    metric, *x = arguments
    with pytest.raises(headrace.UsageError) as raised:
        sweep.plot(metric, x=x[0] if x else None)
    assert str(raised.value).startswith(words)


def test_a_plot_of_nothing_that_varies_is_refused():
    alone = headrace.sweep("resnet50", policy="graph", requests=50)
    with pytest.raises(headrace.UsageError, match="choose from the settings that vary: none"):
        alone.plot()


DRAWING = ("headrace.sim.sweeps.picture", "headrace.sim.plot_style")


def test_a_plot_without_matplotlib_says_what_to_install(sweep, monkeypatch):
    for name in list(sys.modules):
        if name == "matplotlib" or name.startswith(("matplotlib.", *DRAWING)):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in DRAWING:
        monkeypatch.delattr(name, raising=False)
    with pytest.raises(headrace.UsageError, match=r'a plot needs Matplotlib: pip install "headrace\[sweeps\]"'):
        sweep.plot()


# ---- what is refused ----

GRAPH = headrace.policies.Graph


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"polcy": "graph"}, "polcy: there is no setting 'polcy'; known are accelerator, "),
        ({"rate_rps": "fast"}, "rate_rps 'fast': it must be of type float; give a number above 0"),
        ({"rate_rps": -1}, "rate_rps -1: give a number above 0"),
        ({"requests": True}, "requests True: it must be of type int"),
        ({"model": 3}, "model 3: it must be of type str"),
        ({"model": "resnet51"}, "there is no model graph 'resnet51'; did you mean resnet50"),
        ({"policy": "nope"}, "policy 'nope': there is no such policy; choose from serial, "),
        ({"policy": GRAPH}, "policy is <class "),
        ({"policy": 3}, "policy is 3, of type int; give a name, or settings of a policy such as policies.Lazy()"),
        ({"policy": GRAPH(), "window_ms": 3}, "the policy is given with its settings; leave out the others"),
        ({"policy": "graph", "coverage": 7}, "coverage 7: give a number above 0 and at most 1"),
        ({"on": "npu"}, "on is npu, of type str; give Npu, MigGpu, MeasuredGpu, Measured or V100"),
        ({"on": headrace.Npu}, "on is <class "),
        ({"workload": 5}, "workload is 5, of type int; give Workload, Poisson, Bursty or Replay"),
        ({"preprocess": 4}, "preprocess is 4, of type int; give Preprocess, or a text such as dpu:4"),
        ({"fleet": 3}, "fleet is 3, of type int; give Fleet"),
        (
            {"model": "resnet50", "workload": headrace.Workload("gnmt")},
            "model 'resnet50': the workload has model 'gnmt'; give it once",
        ),
        ({"workload": headrace.Replay("nothing.csv"), "rate_rps": 5.0}, "--replay brings its own arrivals"),
    ],
)
@pytest.mark.parametrize("call", ["simulate", "sweep"])
def test_a_wrong_argument_is_refused_with_what_to_give(call, arguments, words):
    with pytest.raises(headrace.UsageError) as raised:
        getattr(headrace, call)(**arguments)
    assert str(raised.value).startswith(words)


def test_a_wrong_value_is_refused_where_it_is_made():
    with pytest.raises(headrace.UsageError, match="--window-ms -1: give a number of 0 or more"):
        GRAPH(window_ms=-1)
    with pytest.raises(TypeError):
        headrace.simulate("resnet50", model="gnmt")
    with pytest.raises(headrace.UsageError, match="rate_rps is an empty list; give a value or several"):
        headrace.sweep(rate_rps=[])
    with pytest.raises(headrace.UsageError, match="ray: no node can import Local from a script or notebook"):
        headrace.sweep(policy=[_local_policy()], ray="local")
    with pytest.raises(TypeError, match="give one of rate_rps and replay"):
        headrace.plan("vgg16", gpu="a100-40gb", slo_ms=3)
    with pytest.raises(headrace.UsageError, match="lengths are for networks as a whole"):
        headrace.profile("mobilenet_v3_small", nodes=True, lengths=[1])
    with pytest.raises(headrace.UsageError, match="image_cus 17: give 0 to 16"):
        headrace.build(image_cus=17)


def _local_policy():
    @headrace.settings()
    class Local:
        """A policy's settings."""

        def build(self, context):
            return GRAPH().build(context)

    return Local()


# ---- profile, serve and the DPU ----


@pytest.fixture
def network(tmp_path, monkeypatch):
    (tmp_path / "double.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    return "double:Double"


def test_a_network_is_profiled_and_simulated_with_that(network, tmp_path):
    async def notebook():
        return headrace.profile(network, workers=1, max_batch=4)

    profile = asyncio.run(notebook())
    assert isinstance(profile, headrace.Profile) and [point.batch for point in profile.points][:2] == [1, 2]
    path = tmp_path / "double.json"
    path.write_text(profile.to_json())
    measured = headrace.Measured(str(path))
    result = headrace.simulate(network, on=measured, policy="graph", rate_rps=50, requests=100)
    assert result.finished == 100 and result.latency_ms["p50"] >= profile.points[0].latency_s * 1e3


def test_a_server_answers_and_ends_where_an_event_loop_runs(network):
    import urllib.request

    body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}

    async def notebook():
        with headrace.serve(network, policy=GRAPH(window_ms=1, max_batch=4), workers=1) as server:
            assert server.running and server.models == (network,)
            url = f"http://{server.http}/v2/models/{network}/infer"
            answer = await asyncio.to_thread(urllib.request.urlopen, url, json.dumps(body).encode(), 30)
            with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=30) as page:
                metrics = page.read().decode()
            return json.load(answer), metrics, server

    answer, metrics, server = asyncio.run(notebook())
    assert answer["outputs"][0]["data"] == [2, 4, 6, 8]
    assert f'headrace_tasks_total{{model="{network}",reason="window"}} 1.0' in metrics
    assert not server.running


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"polcy": "graph"}, "--polcy"),
        ({"policy": "nope"}, "policy 'nope': there is no such policy"),
        ({"policy": 3}, "policy 3: give a name, or an object that has build"),
        ({"policy": GRAPH}, "policy <class "),
        ({"policy": GRAPH(), "max_batch": 3}, "max_batch: the policy is given with its settings; leave it out"),
        ({"workers": -1}, "--workers"),
    ],
)
def test_a_server_that_cannot_be_is_refused(arguments, words, network):
    with pytest.raises(headrace.UsageError) as raised:
        headrace.serve(network, **arguments)
    assert words in str(raised.value)


def test_a_server_takes_no_policy_that_it_cannot_import(network):
    with pytest.raises(headrace.UsageError, match="policy Local: the server is another process"):
        headrace.serve(network, policy=_local_policy())


@pytest.mark.slow
def test_a_network_that_fails_is_reported_with_the_servers_last_words(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("def network():\n    raise ValueError('no weights here')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(headrace.HeadraceError, match="no weights here"):
        headrace.serve("broken:network", policy="graph", workers=1)


def test_the_dpu_is_used_by_public_names_alone():
    image = (ROOT / "examples" / "chelsea.jpg").read_bytes()
    spec = headrace.ImageSpec(resize_short=73, crop_width=64, crop_height=64)

    async def notebook():
        async with headrace.Dpu(headrace.build(), spec, fallback=headrace.Fallback.RAISE) as dpu:
            tensor = await dpu.preprocess(image)
            with pytest.raises(headrace.UnsupportedInput):
                await dpu.preprocess(b"GIF89a not for the DPU")
            return tensor

    assert asyncio.run(notebook()).shape == (3, 64, 64)
