"""The plugins that vLLM and SGLang find by their entry points."""

import logging
from importlib.metadata import entry_points

import pytest
import transformers

import headrace
from headrace.batching import UsageError

GROUPS = {"vllm": "vllm.general_plugins", "sglang": "sglang.srt.plugins"}


@pytest.fixture(params=GROUPS)
def plugin(request):
    """Return the name of an engine and its plugin."""
    (found,) = entry_points(group=GROUPS[request.param], name="headrace")
    yield request.param, found.load()
    headrace.unregister_processors()


def test_a_plugin_registers_where_a_target_is_set(plugin, monkeypatch, caplog):
    engine, register = plugin
    own = transformers.AutoImageProcessor.__dict__["from_pretrained"]
    monkeypatch.setenv("HEADRACE_TARGET", "cpu")
    with caplog.at_level(logging.INFO):
        register()
    assert transformers.AutoImageProcessor.__dict__["from_pretrained"] is not own
    assert caplog.record_tuples == [
        (f"{engine}.headrace", logging.INFO, "headrace makes the inputs of models; target cpu")
    ]


def test_a_plugin_does_nothing_without_a_target(plugin, monkeypatch):
    own = transformers.AutoImageProcessor.__dict__["from_pretrained"]
    monkeypatch.delenv("HEADRACE_TARGET", raising=False)
    plugin[1]()
    assert transformers.AutoImageProcessor.__dict__["from_pretrained"] is own


def test_a_target_that_is_not_there_is_refused(plugin, monkeypatch):
    monkeypatch.setenv("HEADRACE_TARGET", "no.xclbin")
    with pytest.raises(UsageError, match=r"no\.xclbin"):
        plugin[1]()
