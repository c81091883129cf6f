from headrace.batching import Request
from headrace.sim.zoo.cells import tree_lstm


def test_a_request_has_a_tree_with_as_many_leaves_as_its_input_is_long():
    unfold = tree_lstm().unfold
    assert unfold(Request(1, "tree", 0.0, input_len=9)).cells == 17
