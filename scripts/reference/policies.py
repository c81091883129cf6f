"""Pages of the policies: what they are, how they treat the example's requests, and what they did in it."""

import re
from functools import cache

import draw_policies

from headrace.batching.policies import BUILT_IN
from headrace.batching.registry import find_policy, step_policy_entry
from headrace.batching.steps.registry import STEP_POLICIES
from reference.markdown import table

NAMES = tuple(BUILT_IN)
PAPERS = {  # by the words with which the policies' files name them
    "LazyBatching": "Choi, Kim, Rhu, [LazyBatching: An SLA-aware Batching System for Cloud Machine Learning Inference]"
    "(https://arxiv.org/abs/2010.13103), HPCA 2021",
    "BatchMaker": "Gao, Yu, Wu, Li, [Low Latency RNN Inference with Cellular Batching]"
    "(https://doi.org/10.1145/3190508.3190541), EuroSys 2018 (BatchMaker)",
    "PREBA": "Yeo, Kim, Choi, Rhu, [PREBA: A Hardware/Software Co-Design for Multi-Instance GPU based AI Inference "
    "Servers](https://arxiv.org/abs/2411.19114), 2024",
    "SMDP": "Xu, Sun, Zhou, Niu, [SMDP-Based Dynamic Batching for Efficient Inference on GPU-Based Platforms]"
    "(https://arxiv.org/abs/2301.12865), ICC 2023",
    "Symphony": "Chen et al., [Symphony: Optimized DNN Model Serving using Deferred Batch Scheduling]"
    "(https://arxiv.org/abs/2308.07470), 2023",
    "Nexus": "Shen et al., [Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis]"
    "(https://doi.org/10.1145/3341301.3359658), SOSP 2019",
    "Clockwork": "Gujarati et al., [Serving DNNs like Clockwork: Performance Predictability from the Bottom Up]"
    "(https://arxiv.org/abs/2006.02464), OSDI 2020",
}
PART = re.compile(r"Sections? [\w-]+(?:\.\d+)?(?: and [\w-]+)?(?:, Algorithm \d+)?")
TASKS = {
    "graph": "whole networks",
    "nodes": "runs of nodes, which end at node boundaries",
    "cells": "cells of recurrent networks",
}


@cache
def _run(name: str) -> draw_policies.Run:
    return draw_policies.play((draw_policies.CASES | draw_policies.FURTHER_CASES)[name])


def sources(name: str) -> str:
    """Return the papers that a policy's file names, each with the parts of it that the file names."""
    text = find_policy(name).paper
    places = sorted((text.index(word), word) for word in PAPERS if word in text)
    ends = [place for place, _ in places[1:]] + [len(text)]
    found = []
    for (place, word), end in zip(places, ends, strict=True):
        parts = PART.findall(text[place:end])
        found.append(PAPERS[word] + "".join(f", {part}" for part in parts))
    return ". ".join(found) + "."


def policy(name: str) -> str:
    """Return the facts of a policy that the code knows."""
    entry = find_policy(name)
    limits = "its profile" if entry.limits_from_profile else "its settings"
    rows = [
        ("class in Python", f"`headrace.policies.{entry.cls.__name__}`"),
        ("tasks", TASKS[entry.tasks]),
        ("batch limit", "1 request" if name == "serial" else f"from {limits}"),
        ("source", sources(name)),
    ]
    return f"{entry.summary}\n\n{table(('property', 'value'), rows)}"


def timeline(name: str) -> str:
    """Return the picture of a run of the example, and its result in a sentence."""
    done = _run(name)
    settings = draw_policies.shown_settings(done.case)
    given = f" with `{settings}`" if settings else ""
    text = f"Eight requests under {done.case.policy}: {draw_policies.summary(done)}"
    return (
        f"![{text}](../../images/policies/{name}.svg)\n\n"
        f"The picture shows [the example](index.md#the-example){given}. Results: {draw_policies.summary(done)}.\n"
    )


def policies() -> str:
    """Return a table of all policies."""
    rows = []
    for name in NAMES:
        entry = find_policy(name)
        rows.append((f"[`{name}`]({name}.md)", entry.summary, TASKS[entry.tasks].split(",")[0]))
    return table(("policy", "what it does", "its tasks are"), rows)


def example() -> str:
    """Return the requests of the example."""
    given = draw_policies.Example()
    rows = [
        (f"R{number + 1}", f"{came:g}", f"{came + slo:g}", str(cells))
        for number, (came, slo, cells) in enumerate(zip(given.arrival_ms, given.slo_ms, given.cells, strict=True))
    ]
    return table(("request", "comes at, ms", "deadline, ms", "steps"), rows)


def costs() -> str:
    """Return how long batches take in the example."""
    node_ms = draw_policies.Example().node_ms
    sizes = range(1, draw_policies.MAX_BATCH + 1)
    rows = [
        (str(size), f"{node_ms(size):g}", f"{4 * node_ms(size):g}", f"{1e3 * size / (4 * node_ms(size)):.0f}")
        for size in sizes
    ]
    return table(("batch", "a node or cell, ms", "nodes A to D, ms", "requests/s"), rows)


def step_policies() -> str:
    """Return a table of the policies of models that decode."""
    entries = [step_policy_entry(name) for name in STEP_POLICIES]
    rows = [(f"[`{each.name}`](#{each.name})", each.summary, each.paper) for each in entries]
    return table(("policy", "what it does", "source"), rows)


GENERATORS = {
    "policy": policy,
    "timeline": timeline,
    "policies": policies,
    "step-policies": step_policies,
    "example": example,
    "costs": costs,
}
