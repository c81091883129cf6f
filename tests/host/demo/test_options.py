import pytest

from headrace.batching import Profile, ProfilePoint, UsageError
from headrace.host.demo.options import DemoOptions


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"policies": ("serial", "cellular")},
            "'cellular' serves networks of cells, and the demo has none; choose from",
        ),
        ({"policies": ("dynamic-graph",)}, "'dynamic-graph' serves networks of cells"),
        ({"policies": ("serial", "magic")}, "'magic' is not one of them; choose from serial, graph"),
        ({"policies": ()}, "no policies given"),
        ({"policies": ("serial", "serial")}, "name each once"),
        ({"preprocessors": ("gpu",)}, "'gpu' is not one of them; choose from beforehand, cpu, dpu"),
        ({"models": ()}, "no models given"),
        ({"models": ("resnet18", "resnet18")}, "name each once"),
        ({"models": ("resnet18", "resnet34"), "weights": ("a.pt",)}, "1 weights for 2 models; give one for each"),
        ({"input_shapes": ("3x8x8", "3x8x8")}, "2 input shapes for 1 models; give one for each"),
        ({"requests": 0}, "give at least 1"),
        ({"rate_rps": 0.0}, "give a rate above 0"),
        ({"rate_rps": float("nan")}, "give a rate above 0"),
        ({"profiles": (Profile("alexnet", 1, (ProfilePoint(1, 1.0, 1.0),)),)}, "profile is of 'alexnet'"),
    ],
)
def test_options_that_cannot_be_met_are_refused_before_anything_is_started(given, message):
    with pytest.raises(UsageError, match=message):
        DemoOptions(images=(), **given)
