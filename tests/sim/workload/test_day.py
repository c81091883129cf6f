from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batching import UsageError
from headrace.sim.workload.day import HOURS, MAX_ROWS, RATES, read_day


def test_rates_hold_from_their_hour_to_the_next_and_the_last_to_the_end(tmp_path):
    file = tmp_path / "day.csv"
    file.write_text("hour,b,a\n0,5,10\n6.5,1.5,20\n22,7,30\n")
    day = read_day(file, ["a", "b"])
    assert [(each.start, each.end) for each in day] == [(0, 6.5), (6.5, 22), (22, 24)]
    assert [each.rates_rps for each in day] == [{"a": 10, "b": 5}, {"a": 20, "b": 1.5}, {"a": 30, "b": 7}]
    assert [each.rate_rps for each in day] == [15, 21.5, 37]
    assert day[0].requests == 15 * 6.5 * 3600


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the header is ''; it must be hour,a"),
        ("hour\n0\n", "the header is 'hour'; it must be hour,a"),
        ("hour,a,b\n0,1,1\n", "it must be hour,a"),
        ("hour,a,a\n0,1,1\n", "it must be hour,a"),
        ("hour,a\n", "has no rows"),
        ("hour,a\nx,1\n", "line 2: could not convert"),
        ("hour,a\n0\n", "line 2"),
        ("hour,a\n0,1,2\n", "line 2: more values than the header has"),
        ("hour,a\n1,1\n", "line 2: the first hour is 1"),
        ("hour,a\nnan,1\n", "line 2: the first hour is nan"),
        ("hour,a\n0,1\n5,1\n5,1\n", "line 4: hour 5 after 5; hours must rise"),
        ("hour,a\n0,1\n24,1\n", "line 3: hour 24 after 0; hours must rise, and be below 24"),
        ("hour,a\n0,0\n", "line 2: give rates of"),
        ("hour,a\n0,nan\n", "line 2: give rates of"),
        ("hour,a\n0,inf\n", "line 2: give rates of"),
        ("hour,a\n" + "".join(f"{24 * row / 97},1\n" for row in range(97)), "line 98: give at most 96 rows"),
        ('hour,a\n0,"1\n', "unexpected end"),
    ],
)
def test_a_broken_day_is_refused_with_the_line(tmp_path, text, message):
    file = tmp_path / "day.csv"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_day(file, ["a"])
    assert str(caught.value).startswith(str(file)) and message in str(caught.value)


cells = st.one_of(st.sampled_from(["0", "1", "6.5", "23.9", "24", "-1", "nan", "1e9", "a", "", '"', "\0"]), st.text())
texts = st.one_of(
    st.binary(),
    st.lists(st.lists(cells, max_size=4), max_size=5).map(
        lambda rows: ("hour,a\n" + "\n".join(",".join(row) for row in rows)).encode(errors="surrogatepass")
    ),
)


@given(texts)
def test_whatever_the_file_holds_it_is_a_day_or_refused(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("day") / "day.csv"
    file.write_bytes(text)
    try:
        day = read_day(file, ["a"])
    except UsageError as error:
        assert str(error).startswith(str(file))
        return
    assert 0 < len(day) <= MAX_ROWS and day[0].start == 0 and day[-1].end == HOURS
    assert all(one.end == other.start for one, other in pairwise(day))
    assert all(each.hours > 0 and RATES[0] <= each.rates_rps["a"] <= RATES[1] for each in day)
