"""Measure a network, serve it under a small load, and simulate the same load with what was measured.

Usage: python 10_live_and_simulated.py [REQUESTS]

The server and the simulator run the same policy object on the same arrivals. What differs is what the simulator leaves
out: HTTP, copies between processes, and whatever else this machine does. Serving needs: pip install "headrace[server]".
"""

import json
import random
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import headrace

requests = int(sys.argv[1]) if len(sys.argv) > 1 else 300
POLICY = headrace.policies.Graph(window_ms=20, max_batch=8)
RATE_RPS = 60

# 1. How long does a batch take on this machine? The file is what `headrace profile` writes.
profile = headrace.profile("my_network:small", workers=1, max_batch=8)
Path("small.profile.json").write_text(profile.to_json())
print(f"one request alone takes {profile.points[0].latency_s * 1e3:.2f} ms")

# 2. When do requests come? Both runs get these times.
rng, at, arrivals = random.Random(1), 0.0, []
for _ in range(requests):
    at += rng.expovariate(RATE_RPS)
    arrivals.append(at)
lines = [f"{at:.6f},{profile.model},1,1\n" for at in arrivals]
Path("arrivals.csv").write_text("arrival_s,model,input_len,output_len\n" + "".join(lines))

# 3. Live: each request is sent at its time, whether or not those before it are answered.
with headrace.serve(model=profile.model, policy=POLICY, workers=1, profile="small.profile.json") as server:
    url = f"http://{server.http}/v2/models/{server.models[0]}/infer"
    body = {"inputs": [{"name": "batch", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}]}
    post = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def ask(due):
        time.sleep(max(0.0, due - time.perf_counter()))
        with urllib.request.urlopen(post, timeout=30) as answer:
            answer.read()
        return (time.perf_counter() - due) * 1e3

    begin = time.perf_counter() + 0.1
    with ThreadPoolExecutor(16) as threads:
        live_ms = sorted(threads.map(ask, [begin + at for at in arrivals]))

# 4. Simulated: the latencies are those of the profile.
measured, replay = headrace.Measured("small.profile.json"), headrace.Replay("arrivals.csv")
simulated = headrace.simulate(profile.model, on=measured, workload=replay, policy=POLICY)

print(f"live:      mean {sum(live_ms) / requests:6.2f} ms, p90 {live_ms[int(0.9 * requests)]:6.2f} ms")
print(f"simulated: mean {simulated.latency_ms['mean']:6.2f} ms, p90 {simulated.latency_ms['p90']:6.2f} ms")
