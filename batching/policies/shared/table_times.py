"""The time in which a BatchTable runs empty, as a policy that knows the node latencies predicts it.

Newcomers run each node once, from the first to the last, and every sub-batch that they reach goes on with them. Each
stretch from one sub-batch to the next costs one look-up of a prefix sum. So the prediction takes time in proportion to
the sub-batches, whatever the number of nodes and requests.

Outputs are assumed to have `dec_timesteps` steps, and sub-batches in the same section to meet in the next step.
Without sections the prediction is exact if the node latencies are.
"""

from headrace.batching.graphs.execution import NodeTimes, steps
from headrace.batching.policies.shared.batch_table import BatchTable


def run_out(
    times: NodeTimes, dec_timesteps: int, table: BatchTable, newcomers: int, longest: float
) -> tuple[float, float]:
    """Return in what time (s) the requests in the table end, and in what time all end, with newcomers.

    The two differ where a decoder ends the graph: the table's requests have fewer steps left than the newcomers.

    Args:
        times: The node latencies of the table's model.
        dec_timesteps: The number of decoder steps that is assumed for every output.
        table: The table, which is not empty. It is not changed.
        newcomers: How many requests enter now; 0 if none does.
        longest: The longest input of the newcomers.
    """
    sections = table.sections
    stack = table.stack
    place = len(stack) - 1  # the sub-batch that is met next
    node = 0
    batch = newcomers
    left = steps(longest) if sections.encodes[0] else dec_timesteps  # steps of this section, or of the next one
    left_inside = 0  # the same for requests of the table
    if newcomers == 0:
        top = stack[place]
        node, batch, longest = top.node, len(top.requests), top.longest
        left = left_inside = top.steps_left(dec_timesteps)
        place -= 1
    total = 0.0
    while True:
        target = stack[place].node if place >= 0 else sections.nodes
        if node == target:
            if place < 0:
                return total, total
            below = stack[place]
            batch += len(below.requests)
            longest = max(longest, below.longest)
            left_inside = max(left_inside, below.steps_left(dec_timesteps))
            left = max(left, left_inside)
            place -= 1
            continue
        first, after = sections.first[node], sections.after[node]
        width = after - first
        if width > 0 and target >= after:  # to the end of the section
            all_s = total + times.duration(batch, longest, node, first + left * width)
            if after == sections.nodes and left_inside < left:
                return total + times.duration(batch, longest, node, first + left_inside * width), all_s
            total = all_s
            node = after
            left = left_inside = dec_timesteps  # only the decoder can follow
            continue
        # A target behind the node is met in the next step of the section.
        total += times.duration(batch, longest, node, target if target > node else target + width)
        node = target
