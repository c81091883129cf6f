"""Compare two policies over a range of loads, on a GPU that is cut into seven slices, and plot the result.

Usage: python 02_sweep_and_plot.py [REQUESTS [PICTURE]]

02_sweep_and_plot.ipynb is the same as a notebook. Plots need Matplotlib: pip install "headrace[sweeps]".
"""

import sys

import headrace

requests = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
picture = sys.argv[2] if len(sys.argv) > 2 else "p99.png"

# Each argument is one value or several. All combinations run, on all cores of this machine: here 2 policies x 6 rates.
sweep = headrace.sweep(
    model="mobilenet_v3_small",
    on=headrace.MigGpu("a100-40gb", "1g.5gb:7"),  # seven slices of an A100, each of which is a worker
    policy=["graph", "preba"],  # a fixed waiting time, and batches as large as a slice can use well
    rate_rps=range(2000, 17001, 3000),
    requests=requests,
)

print("policy   rate (1/s)   p99 (ms)   mean batch")
for row in sweep.to_dicts():  # to_pandas() gives the same as a DataFrame
    print(f"{row['policy']:8} {row['rate_rps']:10} {row['p99_ms']:10.2f} {row['batch_size_mean']:12.1f}")

sweep.plot("p99_ms", path=picture)  # one line a policy, over the rate
print(f"wrote {picture}")
