"""The choice of cases that stay in `make test`: as many as said, spread over all parts of their names."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from stratified import chosen, mark_others_slow


def test_each_part_is_there_once_before_any_is_there_often():
    names = [f"{kind}-{sampling}-{quality}" for kind in "ab" for sampling in "cdef" for quality in (5, 50, 90)]
    quick = chosen(names, 4)
    assert len(quick) == 4
    assert [len({name.split("-")[place] for name in quick}) for place in range(3)] == [2, 4, 3]


def test_words_of_a_part_count_too():
    names = [f"{luma} {chroma}" for luma in ("1x1", "2x1", "2x2", "4x1") for chroma in ("1x1", "1x2", "2x1", "2x2")]
    quick = chosen(names, 4)
    assert {name.split()[0] for name in quick} == {"1x1", "2x1", "2x2", "4x1"}
    assert {name.split()[1] for name in quick} == {"1x1", "1x2", "2x1", "2x2"}


@pytest.mark.parametrize(("count", "taken"), [(0, 0), (3, 3), (5, 5), (9, 5)])
def test_all_are_taken_where_there_are_no_more(count, taken):
    assert len(chosen(["a", "b", "c", "d", "e"], count)) == taken


class Case:
    """As much of a collected test as is looked at."""

    def __init__(self, test: str, name: str, *marks: pytest.MarkDecorator) -> None:
        self.path, self.originalname, self.callspec = Path("test_x.py"), test, SimpleNamespace(id=name)
        self.marks = [mark.mark for mark in marks]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)

    @property
    def is_slow(self) -> bool:
        return self.get_closest_marker("slow") is not None


def test_the_others_of_each_test_are_slow():
    quick = pytest.mark.quick(2)
    cases = [Case(test, name, quick) for test in ("test_a", "test_b") for name in "cdefg"]
    plain = Case("test_c", "c")
    mark_others_slow([*cases, plain])
    assert [sum(case.is_slow for case in cases if case.originalname == test) for test in ("test_a", "test_b")] == [3, 3]
    assert not plain.is_slow


def test_names_that_have_no_number_stay_and_slow_ones_do_not_count():
    quick = pytest.mark.quick(rtlsim=1)
    cases = [Case("test_a", f"{name}-{number}", quick) for name in ("csim", "rtlsim") for number in range(3)]
    slow = Case("test_a", "rtlsim-9", quick, pytest.mark.slow)
    mark_others_slow([slow, *cases])
    assert [case.is_slow for case in cases[:3]] == [False] * 3
    assert sum(case.is_slow for case in cases[3:]) == 2
