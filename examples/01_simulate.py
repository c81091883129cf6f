"""Simulate one run: requests for a network arrive at random, and two accelerators answer them in batches.

Usage: python 01_simulate.py [REQUESTS]

Nothing is measured here: the accelerator is a model of a systolic array, and time is virtual. So the run is over in a
moment and gives the same numbers on every machine.
"""

import sys

import headrace

requests = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000

result = headrace.simulate(
    "resnet50",  # a network of the zoo, known layer by layer
    on=headrace.Npu(2),  # two neural processing units
    workload=headrace.Poisson(rate_rps=3500, requests=requests),  # 3500 requests a second on average, at random times
    policy="lazy",  # how requests become batches; `headrace policies` lists the others
    slo_ms=20,  # an answer is late after this time
)

print(f"{result.finished} of {result.requests} requests were answered")
print(f"throughput    {result.throughput_rps:8.1f} requests/s")
print(f"latency, mean {result.latency_ms['mean']:8.2f} ms")
print(f"latency, p99  {result.latency_ms['p99']:8.2f} ms, so 1 % of the requests took longer")
print(f"late          {result.sla_violation_rate:8.2%}")
print(f"batch size    {result.batch_size_mean:8.2f} on average")
print(f"busy          {result.utilization:8.2%} of the time")
for warning in result.warnings:  # settings that have no effect, or a load that is too much
    print("warning:", warning)
