"""Simulate the requests that a file lists, instead of random ones.

Usage: python 08_replay_a_trace.py [TRACE.csv]

A trace is a CSV file with a line for each request: arrival_s,model,input_len,output_len. Lengths are in the model's own
unit, such as words of a sentence. trace.csv has 400 requests for a translator and an image network, in bursts.
"""

import sys
from pathlib import Path

import headrace

trace = sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).parent / "trace.csv")

# What would have happened if the requests had come faster?
for speed in (1, 2, 4):
    result = headrace.simulate(
        "gnmt,resnet50",
        on=headrace.Npu(2),
        workload=headrace.Replay(trace, replay_speed=speed),
        policy="lazy",
        slo_ms=100,
    )
    print(
        f"{speed} times as fast: {result.requests} requests, {result.throughput_rps:6.1f}/s, "
        f"p99 {result.latency_ms['p99']:7.2f} ms, {result.sla_violation_rate:6.2%} late"
    )
