"""Test scripts/mutate.py: its changes, its sample, and its verdicts on a small tree."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mutate(load_script):
    return load_script("mutate")


def changes(mutants, text):
    """Return {(old line, new line)}, without indentation."""
    lines = text.split("\n")
    return {(lines[line - 1].strip(), new.strip()) for line, _, new in mutants(text)}


PYTHON = '''"""A module with 1 < 2."""
import logging
def choose(a: int, b: "1 < 2" = 3) -> int:
    """Return min(a, b) + 1."""
    if a < b and not a:
        raise ValueError(f"{a + 1} is less than " + str(b - 1))
    logging.info("%s", a + 1)
    logging.info("%s", a - 1)
    assert a > 0
    note(a)
    a += b
    return min(a, b)
'''


def test_python_changes_behaviour_only(mutate):
    assert changes(mutate.python_mutants, PYTHON) == {
        ('def choose(a: int, b: "1 < 2" = 3) -> int:', 'def choose(a: int, b: "1 < 2" = 4) -> int:'),
        ('def choose(a: int, b: "1 < 2" = 3) -> int:', 'def choose(a: int, b: "1 < 2" = 2) -> int:'),
        ("if a < b and not a:", "if a <= b and not a:"),
        ("if a < b and not a:", "if a < b or not a:"),
        ("if a < b and not a:", "if a < b and a:"),
        ("if a < b and not a:", "if (not (a < b and not a)):"),
        ('raise ValueError(f"{a + 1} is less than " + str(b - 1))', "pass"),
        ("note(a)", "pass"),
        ("a += b", "pass"),
        ("a += b", "a -= b"),
        ("return min(a, b)", "return None"),
        ("return min(a, b)", "return max(a, b)"),
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a = b == c", "a = b != c"),
        ("a = b is not c", "a = b is c"),
        ("a = (b + c) - d", "a = (b + c) + d"),
        ("a = b // c", "a = b * c"),
        ("a = '€' if b >= c else d", "a = '€' if b > c else d"),
        ("a = b[0]", "a = b[1]"),
        ("a.b = c", "pass"),
        ("while a: continue", "while a: pass"),
        ("a = b if c else d", "a = b if (not (c)) else d"),
    ],
)
def test_a_line_of_python_has_this_change(mutate, old, new):
    assert (old, new) in changes(mutate.python_mutants, old)


VERILOG = """module top (input logic [7:0] width_i);
  logic [7:0] sum_q;  // sum + 1
  assign full = count_q == Depth && a <= b;
  assert property (@(posedge clk_i) full |-> count_q == 8);
  always_ff @(posedge clk_i) begin
    if (step) sum_q <= sum_q + (value >> 3);
    if (a < b) $display("a < b");
  end
endmodule"""


def test_verilog_changes_behaviour_only(mutate):
    assign, step = "assign full = count_q == Depth && a <= b;", "if (step) sum_q <= sum_q + (value >> 3);"
    assert changes(mutate.verilog_mutants, VERILOG) == {
        (assign, "assign full = count_q != Depth && a <= b;"),
        (assign, "assign full = count_q == Depth || a <= b;"),
        (step, "if (step) sum_q <= sum_q - (value >> 3);"),
        (step, "if (step) sum_q <= sum_q + (value >> 4);"),
        (step, "if (step) sum_q <= sum_q + (value >> 2);"),
        (step, "if (step) ;"),
        ('if (a < b) $display("a < b");', 'if (a <= b) $display("a < b");'),
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if (count_q <= 7'd12) begin", "if (count_q < 7'd12) begin"),
        ("if (count_q <= 7'd12) begin", "if (count_q <= 7'd13) begin"),
        ("done_q <= 1'b0;", "done_q <= 1'b1;"),
        ("next_d = in[3];", "next_d = in[4];"),
        ("localparam int Latency = 8;", "localparam int Latency = 9;"),
    ],
)
def test_a_line_of_verilog_has_this_change(mutate, old, new):
    assert (old, new) in changes(mutate.verilog_mutants, old)


def test_a_sample_takes_equal_shares_and_grows_with_the_count(mutate):
    candidates = {
        area: [mutate.Mutant(area, f"{area}.py", line, "compare", "<", "<=") for line in range(size)]
        for area, size in (("few", 3), ("many", 100), ("more", 200))
    }
    small, large = mutate.sample(candidates, 9, 1), mutate.sample(candidates, 21, 1)
    assert [sum(m.area == area for m in small) for area in candidates] == [3, 3, 3]
    assert [sum(m.area == area for m in large) for area in candidates] == [3, 9, 9]
    assert set(small) <= set(large) and len(set(large)) == 21
    assert mutate.sample(candidates, 9, 1) == small != mutate.sample(candidates, 9, 2)
    alone = mutate.sample({"many": candidates["many"]}, 9, 1)
    assert alone == [m for m in large if m.area == "many"], "another area changes nothing"
    assert len(mutate.sample(candidates, 1000, 1)) == 303


def test_every_area_has_mutants_and_tests(mutate):
    for name, area in mutate.AREAS.items():
        mutants = mutate.mutants_of(ROOT, name, area)
        assert len(mutants) > 100, name
        assert all(any(ROOT.glob(pattern)) for pattern in (*area.sources, *area.tests)), name


def test_every_group_of_moved_tests_has_mutants_and_slow_tests(mutate):
    for name, area in mutate.MOVED.items():
        files = {path for pattern in area.sources for path in ROOT.glob(pattern)}
        assert files and len(mutate.mutants_of(ROOT, name, area)) > 20, name
        tests = mutate.slow_tests_of(ROOT, min(files).relative_to(ROOT).as_posix(), area)
        marked = [test for test in tests if re.search(r"mark\.slow|SLOW|mark\.quick", (ROOT / test).read_text())]
        assert marked, name
        assert all(any(ROOT.glob(pattern)) for pattern in (*area.tests, *area.slow)), name


def test_survivors_are_tried_with_the_slow_tests_of_the_group(mutate):
    tests = ("tests/batching/test_*.py",)
    other = mutate.Area(("batching/*.py",), tests, ("tests/sim/test_engine.py",))
    assert mutate.slow_tests_of(ROOT, "batching/request.py", other) == ["tests/sim/test_engine.py"]
    same = mutate.slow_tests_of(ROOT, "batching/request.py", mutate.Area(("batching/*.py",), tests))
    assert same[0] == "tests/batching/test_request.py" and len(same) > 1


def test_a_group_is_not_an_area(mutate, capsys):
    for words in (["--area", "planner"], ["--moved", "--area", "engine"]):
        with pytest.raises(SystemExit) as ended:
            mutate.main([*words, "--count", "1"])
        assert ended.value.code == 2 and f"--area {words[-1]}: choose from" in capsys.readouterr().err


def test_survivors_of_an_earlier_run_are_found_where_their_lines_are_now(mutate, tmp_path):
    def mutant(line, old):
        return mutate.Mutant("sim", "sim/small.py", line, "compare", old, f"{old} + 1")

    earlier = [mutate.Outcome(mutant(4, "a"), killed, "", 1.0) for killed in (True, False)]
    earlier += [mutate.Outcome(mutant(9, "b"), False, "", 1.0), mutate.Outcome(mutant(9, "gone"), False, "", 1.0)]
    path = tmp_path / "mutants.json"
    path.write_text(mutate.report_json(earlier, 1, "area"))
    now = [mutant(1, "a"), mutant(5, "a"), mutant(10, "b")]
    assert mutate.survivors_of(path, {"sim": now}) == [mutant(5, "a"), mutant(10, "b")]
    assert mutate.survivors_of(path, {"other": now}) == []


def test_the_table_of_moved_tests_tells_who_kills(mutate):
    def outcome(killed, slow=""):
        return mutate.Outcome(mutate.Mutant("wav", "hls/wav/wav.sv", 1, "compare", "<", "<="), killed, "", 1.0, slow)

    shown = mutate.moved_table([outcome(True), outcome(True), outcome(True), outcome(False), outcome(False, "test_x")])
    assert shown.splitlines()[-1] == "| wav | 5 | 3 | 1 | 1 |"


def test_changed_python_compiles(mutate):
    python = [name for name, area in mutate.AREAS.items() if area.sources[0].endswith(".py")]
    mutants = mutate.sample({name: mutate.mutants_of(ROOT, name, mutate.AREAS[name]) for name in python}, 100, 1)
    for mutant in mutants:
        lines = (ROOT / mutant.file).read_text().split("\n")
        assert lines[mutant.line - 1] == mutant.old != mutant.new
        compile("\n".join([*lines[: mutant.line - 1], mutant.new, *lines[mutant.line :]]), mutant.file, "exec")


def test_the_nearest_tests_come_first(mutate):
    area = mutate.AREAS["batching"]
    nearest, folder, every = (
        mutate.tests_of(ROOT, "batching/policies/cellular.py", area, scope) for scope in mutate.SCOPES
    )
    assert nearest[0] == "tests/batching/policies/test_cellular.py"
    assert folder[: len(nearest)] == nearest and every[: len(folder)] == folder
    assert len(nearest) < len(folder) < len(every) == len(set(every))
    assert all("cellular" in Path(test).stem for test in nearest)
    assert all(Path(test).parent.name == "policies" for test in folder)


SOURCE = '''def larger(a, b):
    """Return the larger of a and b."""
    return a if a >= b else b


def countdown(a):
    while True:
        a -= 1
        if a <= 0:
            return a
'''
WEAK = "from headrace.sim.small import larger\n\n\ndef test_larger():\n    assert larger(2, 2) == 2\n"
STRONG = """from headrace.sim.small import countdown, larger


def test_larger():
    assert (larger(1, 2), larger(2, 1)) == (2, 2)


def test_countdown():
    assert (countdown(1), countdown(0)) == (0, -1)
"""


@pytest.fixture
def tree(tmp_path):
    for folder in ("sim", "tests/sim"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sim" / "small.py").write_text(SOURCE)
    (tmp_path / "tests" / "sim" / "test_small.py").write_text(STRONG)
    return tmp_path


@pytest.fixture
def areas(mutate):
    return {"sim": mutate.Area(("sim/*.py",), ("tests/sim/test_*.py",))}


@pytest.mark.slow
def test_a_line_that_no_test_reaches_survives(mutate, tree, areas, capsys):
    (tree / "tests" / "sim" / "test_small.py").write_text(WEAK)
    found = tree / "mutants.json"
    options = ["--count", "4", "--seed", "7", "--json", str(found), "--at-least", "99"]
    assert mutate.main(options, tree, areas) == 1
    out, err = capsys.readouterr()
    mutants = json.loads(found.read_text())["mutants"]
    assert len(mutants) == 4 and "less than 99.0 %" in err
    assert {m["killed"] for m in mutants if m["line"] > 5} == {False}
    for mutant in mutants:
        old, new = mutant["old"].strip(), mutant["new"].strip()
        shown = f"sim/small.py:{mutant['line']} {mutant['kind']}\n  - {old}\n  + {new}\n" in out
        assert shown == (not mutant["killed"])
    killed = sum(m["killed"] for m in mutants)
    assert f"| sim | {killed} | 4 | {25 * killed} % |" in out
    assert (tree / "sim" / "small.py").read_text() == SOURCE


def outcome_of(mutate, tree, areas, old, new):
    """Try one change of the tree."""
    (mutant,) = [
        m for m in mutate.mutants_of(tree, "sim", areas["sim"]) if (m.old.strip(), m.new.strip()) == (old, new)
    ]
    (outcome,) = mutate.run(tree, areas, [mutant], "area", 1)
    return outcome


def test_a_change_that_a_test_notices_is_killed_by_it(mutate, tree, areas):
    outcome = outcome_of(mutate, tree, areas, "if a <= 0:", "if a < 0:")
    assert outcome.killed and outcome.by.endswith("test_countdown")


def test_a_change_that_alters_no_behaviour_survives(mutate, tree, areas):
    outcome = outcome_of(mutate, tree, areas, "return a if a >= b else b", "return a if a > b else b")
    assert not outcome.killed and outcome.by == ""


@pytest.mark.slow
def test_a_change_that_only_slow_tests_notice_counts_as_survived(mutate, tree, areas, capsys, monkeypatch):
    monkeypatch.setattr(mutate, "SLOW", mutate.Limits(1.0, 30.0))
    slow = STRONG.replace("def test_countdown", "@pytest.mark.slow\ndef test_countdown")
    (tree / "tests" / "sim" / "test_small.py").write_text(f"import pytest\n\n{slow}")
    found = tree / "mutants.json"
    assert mutate.main(["--count", "20", "--slow", "--json", str(found)], tree, areas) == 0
    mutants = json.loads(found.read_text())["mutants"]
    in_countdown = [m for m in mutants if m["line"] > 5]
    assert in_countdown and not any(m["killed"] for m in in_countdown)
    assert sum(m["slow"].endswith("test_countdown") for m in in_countdown) >= 3
    assert not any(m["slow"] for m in mutants if m["line"] <= 5)
    assert "test_countdown, which is slow" in capsys.readouterr().out
    (mutant,) = [
        m
        for m in mutate.survivors_of(found, {"sim": mutate.mutants_of(tree, "sim", areas["sim"])})
        if m.new.strip() == "a += 1"
    ]
    (outcome,) = mutate.run(tree, areas, [mutant], "area", 1, slow=True, quick=False)
    assert not outcome.killed and outcome.slow


@pytest.mark.slow
def test_a_loop_without_end_is_killed(mutate, tree, areas, monkeypatch):
    monkeypatch.setattr(mutate, "MIN_TIMEOUT", 1.0)
    outcome = outcome_of(mutate, tree, areas, "a -= 1", "pass")
    assert outcome.killed and outcome.by == "timeout"


def test_nothing_is_changed_where_the_tests_fail_already(mutate, tree, areas, capsys):
    (tree / "tests" / "sim" / "test_small.py").write_text("def test_wrong():\n    assert 1 == 2\n")
    assert mutate.main(["--count", "1"], tree, areas) == 1
    out, err = capsys.readouterr()
    assert out == "" and "fail before anything is changed" in err and "test_wrong" in err


def test_a_file_without_mutants_is_bad_usage(mutate, tree, areas, capsys):
    with pytest.raises(SystemExit) as ended:
        mutate.main(["--file", "sim/smal.py"], tree, areas)
    assert ended.value.code == 2 and "--file sim/smal.py: no area" in capsys.readouterr().err


def test_only_the_files_that_were_asked_for_are_changed(mutate, tree, areas, capsys):
    (tree / "sim" / "other.py").write_text("LIMIT = 3\n")
    options = ["--file", "sim/other.py", "--jobs", "1", "--at-least", "1"]
    assert mutate.main(options, tree, areas) == 1
    out, err = capsys.readouterr()
    assert "0.0 % of the mutants were killed, less than 1.0 %" in err
    assert "| sim | 0 | 2 | 0 % |" in out and "sim/other.py:1 constant\n  - LIMIT = 3\n  + LIMIT = 4" in out


def test_a_copy_has_no_module_that_mypyc_compiled(mutate, tmp_path):
    policies = tmp_path / "tree" / "batching" / "policies"
    policies.mkdir(parents=True)
    for name in ("lazy.py", "lazy.cpython-311.so", "kernel.pyx", "kernel.cpython-311.so", "compiled__mypyc.so"):
        (policies / name).touch()
    mutate.make_copy(tmp_path / "tree", tmp_path / "copy")
    copied = tmp_path / "copy" / "build" / "typing" / "headrace" / "batching" / "policies"
    assert {path.name for path in copied.iterdir()} == {"lazy.py", "kernel.pyx", "kernel.cpython-311.so"}


def test_a_copy_keeps_what_is_compiled_if_no_compiled_source_changes(mutate, tmp_path):
    policies = tmp_path / "tree" / "batching" / "policies"
    (policies / "__pycache__").mkdir(parents=True)
    names = {"lazy.py", "lazy.cpython-311.so", "kernel.pyx", "kernel.cpython-311.so", "by_name.py"}
    for name in names:
        (policies / name).touch()
    assert [name for name in sorted(names) if mutate.is_compiled(policies / name)] == ["lazy.py"]
    mutate.make_copy(tmp_path / "tree", tmp_path / "copy", compiled=True)
    assert {path.name for path in (tmp_path / "copy" / "batching" / "policies").iterdir()} == names
