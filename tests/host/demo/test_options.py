import pytest

from headrace.batching import Profile, ProfilePoint, UsageError
from headrace.batching.policies.graph import Graph
from headrace.batching.policies.lazy import Lazy
from headrace.batching.policies.serial import Serial
from headrace.host.demo.options import DemoOptions


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"policies": ("serial", "cellular")},
            "'cellular' serves networks of cells, and the demo has none; choose from",
        ),
        ({"policies": ("dynamic-graph",)}, "'dynamic-graph' serves networks of cells"),
        ({"policies": ("serial", "magic")}, "'magic': there is no such policy; choose from serial, graph"),
        ({"policies": ()}, "no policies given"),
        ({"policies": ("serial", "serial")}, "name each once"),
        ({"preprocessors": ("gpu",)}, "'gpu' is not one of them; choose from beforehand, cpu, dpu"),
        ({"models": ()}, "no models given"),
        ({"models": ("resnet18", "resnet18")}, "name each once"),
        ({"models": ("resnet18", "resnet34"), "weights": ("a.pt",)}, "1 weights for 2 models; give one for each"),
        ({"input_shapes": ("3x8x8", "3x8x8")}, "2 input shapes for 1 models; give one for each"),
        ({"settings": {"coverage": 0.5}}, "--set coverage: none of the policies serial, graph, preba has this setting"),
        ({"policies": ("serial",), "settings": {"window_ms": 1}}, "serial has this setting; known are none"),
        ({"settings": {"window_ms": "soon"}}, "--window-ms 'soon': "),
        ({"requests": 0}, "give at least 1"),
        ({"rate_rps": 0.0}, "give a rate above 0"),
        ({"rate_rps": float("nan")}, "give a rate above 0"),
        ({"profiles": (Profile("alexnet", 1, (ProfilePoint(1, 1.0, 1.0),)),)}, "profile is of 'alexnet'"),
    ],
)
def test_options_that_cannot_be_met_are_refused_before_anything_is_started(given, message):
    with pytest.raises(UsageError, match=message):
        DemoOptions(images=(), **given)


def test_each_policy_takes_the_settings_that_it_has():
    options = DemoOptions(
        images=(),
        policies=("serial", "graph", "lazy"),
        settings={"window_ms": "2", "coverage": "0.5"},
        max_batch=16,
    )
    assert options.policy("graph") == Graph(window_ms=2.0, max_batch=16)
    assert options.policy("lazy") == Lazy(coverage=0.5, max_batch=16)
    assert options.policy("serial") == Serial()


def test_a_limit_on_the_batch_of_the_policies_may_differ_from_the_profiles():
    options = DemoOptions(images=(), policies=("graph",), settings={"max_batch": 8}, max_batch=32)
    assert options.policy("graph") == Graph(max_batch=8) and options.max_batch == 32


def test_a_policy_of_a_users_own_module_is_compared_as_the_others(tmp_path, monkeypatch):
    (tmp_path / "demo_policy.py").write_text("from headrace.batching.policies.graph import Graph as Own\n")
    monkeypatch.syspath_prepend(tmp_path)
    options = DemoOptions(images=(), policies=("serial", "demo_policy:Own"), settings={"window_ms": 3})
    assert options.policy("demo_policy:Own") == Graph(window_ms=3.0, max_batch=32)


def test_networks_and_policies_of_a_run_depend_on_what_it_compares():
    options = DemoOptions(images=(), models=("a",), file_models=("b",))
    assert (options.models_of("beforehand"), options.models_of("dpu"), options.used_models) == (
        ("a",),
        ("b",),
        ["a", "b"],
    )
    assert options.policies_of("beforehand") == ("serial", "graph", "preba") and options.policies_of("dpu") == (
        "preba",
    )
    only = DemoOptions(images=(), models=("a",), file_models=("b",), preprocessors=("dpu", "cpu"))
    assert only.used_models == ["b"] and only.policies_of("dpu") == ("serial", "graph", "preba")
    assert (only.first_preprocessor, only.last_preprocessor) == ("cpu", "dpu")
    assert DemoOptions(images=(), models=("a",)).models_of("dpu") == ("a",)
