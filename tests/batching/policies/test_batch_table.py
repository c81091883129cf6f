"""The BatchTable alone: where the top may run to, which outputs are complete there, and the order of the stack."""

import pytest

from headrace.batching import Request
from headrace.batching.graphs.execution import Sections
from headrace.batching.graphs.model_graph import ModelGraph, Node, NodeKind
from headrace.batching.policies.shared.batch_table import BatchTable
from headrace.batching.request import UNTIL_END

KINDS = {"s": NodeKind.STATIC, "e": NodeKind.ENCODER, "d": NodeKind.DECODER}
OLD = Request(0, "net", 0.0, output_len=5)
YOUNG = Request(1, "net", 0.0, output_len=1)


def table_of(kinds, *, equal_timesteps=False):
    graph = ModelGraph("net", tuple(Node(str(number), KINDS[kind]) for number, kind in enumerate(kinds)))
    return BatchTable(Sections(graph), equal_timesteps)


def stack_of(table):
    """[(request ids, node)] from the bottom to the top."""
    return [([request.id for request in sub_batch.requests], sub_batch.node) for sub_batch in table.stack]


def two_decoding(*, equal_timesteps=False):
    """`OLD` ran two steps and one node of the third; `YOUNG` is above it, at the first node of its first step."""
    table = table_of("sdds", equal_timesteps=equal_timesteps)
    table.push((OLD,))
    assert table.advance(1 + 5, ()) == ()
    table.push((YOUNG,))
    assert table.advance(1, ()) == ()
    assert stack_of(table) == [([0], 2), ([1], 1)] and table.size == 2
    return table


def test_outputs_that_are_complete_are_those_of_the_top():
    table = two_decoding()
    assert [table.outputs_complete(stop) for stop in (0, 1, 2, 3)] == [(), (), (), (YOUNG,)]


def test_a_request_with_its_whole_output_waits_below_those_that_still_decode():
    table = two_decoding(equal_timesteps=True)
    assert table.advance(3, (YOUNG,)) == ()
    assert stack_of(table) == [([1], 3), ([0], 2)] and table.size == 2
    assert table.advance(2 + 1 + 4, (OLD,)) == ()
    assert stack_of(table) == [([1, 0], 3)]
    assert list(table.advance(4, ())) == [YOUNG, OLD] and table.size == 0 and table.stack == []


def test_the_top_stops_where_it_meets_the_sub_batch_below():
    assert two_decoding().next_stop() == 2
    assert two_decoding(equal_timesteps=True).next_stop() == 2 + 2 * 2
    assert two_decoding(equal_timesteps=True).next_stop(outputs_known=True) == 3


def test_the_top_meets_one_at_an_earlier_node_of_its_section_in_the_next_step():
    table = table_of("sdds")
    for request, stop in ((OLD, 1), (YOUNG, 2)):
        table.push((request,))
        table.advance(stop, ())
    assert stack_of(table) == [([0], 1), ([1], 2)]
    assert table.next_stop() == 3


def test_a_top_with_nothing_below_runs_until_a_request_leaves():
    table = table_of("sdds")
    table.push((OLD,))
    assert table.next_stop() == UNTIL_END
    table.advance(1 + 5, ())
    assert table.next_stop(outputs_known=True) == 1 + 3 * 2
    encoder = table_of("see")
    encoder.push((Request(0, "net", 0.0, input_len=4), Request(1, "net", 0.0, input_len=3)))
    assert encoder.next_stop() == 1 + 3 * 2
    static = table_of("sss")
    static.push((OLD,))
    assert static.next_stop() == 3


@pytest.mark.parametrize("known", [False, True])
def test_merged_requests_keep_their_own_steps(known):
    table = two_decoding()
    assert not table.merged
    table.advance(2, ())
    assert table.merged and stack_of(table) == [([0, 1], 2)]
    assert table.stack[0].joined == [0, 2]
    assert table.next_stop(outputs_known=known) == (3 if known else UNTIL_END)
    assert table.outputs_complete(3) == (YOUNG,)
    assert table.outputs_complete(1 + 3 * 2) == (OLD, YOUNG)


def test_requests_leave_the_encoder_after_their_own_steps():
    table = table_of("ees")
    long, short = Request(0, "net", 0.0, input_len=3), Request(1, "net", 0.0, input_len=2)
    table.push((long, short))
    assert table.advance(2 * 2, ()) == ()
    assert stack_of(table) == [([1], 2), ([0], 0)]
    assert table.next_stop() == 2
    table.advance(2, ())
    assert table.merged and stack_of(table) == [([1, 0], 2)]


def test_a_copy_goes_its_own_way():
    table = two_decoding()
    copy = table.copy()
    copy.advance(2, ())
    assert len(copy.stack) == 1 and len(table.stack) == 2 and copy.size == table.size == 2
    assert table.stack[0].joined == [0]


def test_a_request_counts_its_output_steps_from_the_end_of_its_encoder():
    table = table_of("ed")
    request = Request(0, "net", 0.0, input_len=3, output_len=2)
    table.push((request,))
    assert table.advance(3, ()) == () and stack_of(table) == [([0], 1)]
    assert [table.outputs_complete(stop) for stop in (1, 2, 3)] == [(), (), (request,)]


def test_a_request_that_stays_keeps_its_own_steps_when_another_leaves():
    table = table_of("sdd")
    first, second = Request(0, "net", 0.0, output_len=3), Request(1, "net", 0.0, output_len=4)
    table.push((first,))
    table.advance(1 + 4, ())
    table.push((second,))
    table.advance(1, ())
    assert table.stack[0].joined == [0, 2]
    assert list(table.advance(3, (first,))) == [first]
    assert table.stack[0].joined == [2] and stack_of(table) == [([1], 1)]
    assert table.outputs_complete(1 + 2 * 2) == () and table.outputs_complete(1 + 3 * 2) == (second,)


def test_a_request_with_its_whole_output_waits_below_all_that_decode():
    table = table_of("sdds", equal_timesteps=True)
    for number, stop in enumerate((1 + 4, 1 + 2, 1)):
        table.push((Request(number, "net", 0.0, output_len=1 if number == 2 else 9),))
        table.advance(stop, ())
    assert stack_of(table) == [([0], 1), ([1], 1), ([2], 1)]
    table.advance(3, table.outputs_complete(3))
    assert stack_of(table) == [([2], 3), ([0], 1), ([1], 1)]
    table.advance(1, table.stack[-1].requests)
    assert stack_of(table) == [([2, 1], 3), ([0], 1)]


def test_newcomers_of_a_graph_without_sections_catch_up_and_merge():
    table = table_of("sss")
    table.push((OLD,))
    assert table.advance(2, ()) == () and stack_of(table) == [([0], 2)]
    table.push((YOUNG,))
    assert table.next_stop() == 2 and not table.merged
    assert table.advance(2, ()) == () and table.merged
    assert stack_of(table) == [([0, 1], 2)]
    table.push((Request(2, "net", 0.0),))
    assert not table.merged and table.size == 3
    table.advance(2, ())
    assert [request.id for request in table.advance(3, ())] == [0, 1, 2] and table.size == 0
