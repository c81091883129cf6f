"""The CPU of BatchMaker's Figure 3, an Intel Xeon E5-2698 v4 with 32 virtual cores, as a roofline.

A step takes as long as the memory needs for the weights, or the cores for the arithmetic, whichever is longer. So it is
the least time that this CPU could need. The paper's curve is a drawing, and its text has no number of it.

Intel's data sheet gives the E5-2698 v4 20 cores of 2.2 GHz and 76.8 GB/s of memory bandwidth. A Broadwell core makes
two fused multiply-adds of 8 floats a cycle. 32 virtual cores are taken to be 16 cores with two threads each.
"""

CORES, CLOCK_HZ, FLOATS_PER_CYCLE = 16, 2.2e9, 2 * 8  # multiply-adds
MEMORY_BYTES_S = 76.8e9
WEIGHTS = 2048 * 4096  # of an LSTM step of hidden size 1024, whose input is as wide


def lstm_step_s(batch: int) -> float:
    """Return the least seconds of an LSTM step in float32."""
    return max(4 * WEIGHTS / MEMORY_BYTES_S, batch * WEIGHTS / (CORES * CLOCK_HZ * FLOATS_PER_CYCLE))
