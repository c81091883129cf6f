"""The conditions of the BatchMaker reproduction: the paper's, ours where the paper is silent, and other readings."""

from dataclasses import replace

from headrace.sim.hardware.v100 import FLAT_S, TreeReading
from headrace.sim.workload.lengths import WMT15, Clipped, Fixed, Lengths, Sentences

BUCKET = 10
WIDTHS = (1, 5, 10, 20, 40)
LOW_RPS = 250  # the least load of the claims
MODERATE_RPS = 8000  # for the LSTM: half of what MXNet serves (Section 7)
EVERY_GATHERS = ", every task gathers"  # ends the names of experiments without locality, for comparison
STEPS = "tree of LSTM steps"
TREE_RPS = 1000  # the load at which the paper compares latencies of trees (Section 7.5)
TREE_BATCH = 64
MERGED_CELLS = 4096  # the limit of a merged batch; 64 bounds the trees and not their cells (Section 7.5)
# The cost of merging on the host, for each cell of each request. It is our assumption, of the order of the time that a
# dynamic framework takes to make an operation.
MERGE_S = 10e-6
# TensorFlow Fold merges more slowly than it computes (Section 7.5). The paper has its peak at a quarter of 3,100/s.
# Sets of 64 trees then take 82.6 ms, of which the cells need some 15, so a cell of each request takes 28 us. Its old
# TensorFlow is 20 % slower (Section 7.5). The paper overlaps merging with execution, but not perfectly. Here nothing
# overlaps.
FOLD, FOLD_MERGE_US, FOLD_SLOWER = "tree of TensorFlow Fold", 28, 1.2
FOLD_RPS = (250, 500, 700)  # loads that Fold serves
CHEAPER, CHEAPER_FIXED = "tree, few rows cheaper", "tree, few rows cheaper, fixed overhead"
TREES = {
    "tree": TreeReading(),
    CHEAPER: TreeReading(least_s=FLAT_S),
    CHEAPER_FIXED: TreeReading(least_s=FLAT_S, fixed_overhead=True),
    FOLD: TreeReading(slower=FOLD_SLOWER),
}
BACKLOG = "width, all at once"  # the experiment in which no batch waits to fill
BACKLOG_RPS = 400_000
AS_INPUTS = "wmt15, outputs as long as inputs"
LENGTHS: dict[str, Lengths] = {
    "wmt15": WMT15,
    AS_INPUTS: replace(WMT15, correlation=1.0),
    "clip 100": Clipped(100),
    "clip 50": Clipped(50),
    "fixed 24": Fixed(24, 24),
    "trees": Sentences(),
    "complete 16": Fixed(16, 1),
}
