"""Compare policies that know each request's deadline with one that batches by a fixed waiting time.

Usage: python 09_batch_by_deadline.py [REQUESTS]

Two networks share two accelerators. `graph` lets every batch wait for 5 ms. `earliest-deadline` runs the most urgent
requests first, in the largest batch that is in time for all of them. `deferred` lets a batch wait for others as long as
that costs no request its deadline.
"""

import sys

import headrace

requests = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000

sweep = headrace.sweep(
    model="resnet50,vgg16",  # both at once: one gets half of the requests, and so does the other
    on=headrace.Npu(2),
    policy=["graph", "earliest-deadline", "deferred"],
    rate_rps=[1000, 1600, 2200],
    slo_ms=25,  # the deadline of a request is its arrival and this
    drop_late=True,  # do not begin what cannot be in time any more
    requests=requests,
)

print("rate (1/s)  policy              in time   mean batch")
for row in sorted(sweep.to_dicts(), key=lambda row: row["rate_rps"]):
    print(
        f"{row['rate_rps']:10}  {row['policy']:18} {1 - row['sla_violation_rate']:8.2%} {row['batch_size_mean']:12.2f}"
    )
