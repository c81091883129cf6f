"""Serve a network of your own, and ask it over HTTP.

Usage: python 05_serve_own_network.py

my_network.py, beside this file, has the network, a PyTorch module. The server is a process of its own, and each of its
workers is another one. It speaks the Open Inference Protocol (KServe, Triton), so any client of that works, too.
Serving needs: pip install "headrace[server]".
"""

import json
import urllib.request

import headrace


def ask(url, body=None):
    """Return the JSON that a server answers: to a GET, or to a POST of `body`."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


# The server measures the network first, to learn how latency grows with the batch. Then it answers until `with` ends.
with headrace.serve(model="small=my_network:small", policy="graph", workers=1, max_batch=8) as server:
    model = f"http://{server.http}/v2/models/small"
    described = ask(model)
    print(f"{described['name']} takes {described['inputs'][0]['shape']} {described['inputs'][0]['datatype']}")

    numbers = [0.5] * 64
    tensor = {"name": described["inputs"][0]["name"], "shape": [1, 64], "datatype": "FP32", "data": numbers}
    scores = ask(f"{model}/infer", {"inputs": [tensor]})["outputs"][0]["data"]
    print(f"the input is of class {scores.index(max(scores))}, with a score of {max(scores):.3f}")
