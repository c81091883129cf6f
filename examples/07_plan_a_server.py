"""Find the cheapest server that meets a target: how to cut the GPU, where to preprocess, and which policy to use.

Usage: python 07_plan_a_server.py [RATE_RPS [MODEL [SLO_MS [QUANTILE]]]]

The search simulates hundreds of servers, on all cores of this machine: first short runs of all, then longer ones of
the best. It takes about half a minute on two cores, and less where the target leaves few choices.
"""

import sys

import headrace

rate_rps = float(sys.argv[1]) if len(sys.argv) > 1 else 3000
model = sys.argv[2] if len(sys.argv) > 2 else "mobilenet_v3_small"
slo_ms = float(sys.argv[3]) if len(sys.argv) > 3 else 30
quantile = float(sys.argv[4]) if len(sys.argv) > 4 else 0.99  # this share of the answers must come within slo_ms

planned = headrace.plan(model, gpu="a100-40gb", slo_ms=slo_ms, rate_rps=rate_rps, quantile=quantile)

best = planned.best
print(f"GPUs          {best['gpus']}, each cut into {best['partition']}")
print(f"preprocessing {best['preprocess']}")
print(f"policy        {best['policy']}")
print(f"latency       {best['quantile_ms']:.1f} ms at quantile {quantile:g} and {rate_rps:g} requests/s")
print(f"at most       {best['most_rps']:.0f} requests/s")
print(f"cost          ${best['cost_usd']:.0f} in three years, with the energy")
print("simulate it: ", best["simulate"])
print("cut the GPU: ", best["mig"])
print("serve it:    ", best["serve"] or best["serve_note"])
