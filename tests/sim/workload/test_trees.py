import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.run import run_scenario
from headrace.sim.scenario import Scenario
from headrace.sim.workload.trees import complete_tree, random_tree, read_trees


def test_trees_have_a_leaf_for_each_word_and_two_children_an_inner_node():
    for tree in (complete_tree(16), random_tree(16, 3)):
        assert tree.cells == 31
        inner = max(tree.subgraphs, key=lambda subgraph: len(subgraph.cells))
        assert len(inner.cells) == 15 and len(inner.needs) == 16
    shapes = {tuple(map(tuple, random_tree(12, seed).subgraphs[-1].feeds)) for seed in range(20)}
    assert len(shapes) > 10


def test_trees_of_ones_own(tmp_path):
    path = tmp_path / "trees.txt"
    path.write_text("(3 (2 It) (4 (2 's) (3 good)))\n\n(1 (2 (0 a)) (2 b))\n(2 word)\n")
    trees = read_trees(path)
    assert [tree.cells for tree in trees] == [5, 3, 1]
    inner = max(trees[0].subgraphs, key=lambda subgraph: len(subgraph.cells))
    assert inner.cells == [3, 4] and inner.needs == [0, 1, 2]
    done, _ = run_scenario(
        Scenario.of(
            model="treelstm", accelerator="v100", policy="cellular", requests=300, rate_rps=500, trees=str(path)
        )
    )
    assert done.result["finished"] == 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no trees"),
        ("(1 (2 a) (2 b)", "line 1: a bracket is not closed"),
        ("(1 a)\n(1 (2 a) (2 b) (2 c))", "line 2: a node has 3 children"),
        ("(1 (2 a) (2 b)) (1 c)", "text follows the tree"),
        ("word", "outside all brackets"),
        (")", "was not opened"),
        ("()", "a label and one word"),
        ("(1 a b)", "a label and one word"),
    ],
)
def test_bad_trees_are_named_with_their_line(text, message, tmp_path):
    path = tmp_path / "trees.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_trees(path)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="()a 1\n", max_size=40))
def test_any_text_is_trees_or_refused(text, tmp_path):
    path = tmp_path / "trees.txt"
    path.write_text(text)
    try:
        trees = read_trees(path)
    except UsageError:
        return
    for tree in trees:
        leaves = sum(len(subgraph.cells) for subgraph in tree.subgraphs if subgraph.type == 0)
        assert tree.cells == 2 * leaves - 1
