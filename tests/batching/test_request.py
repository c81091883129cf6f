import math

import pytest

from headrace.batching import REASONS, Request, Task, UsageError

REQUESTS = (Request(0, "net", 0.0), Request(1, "net", 0.5))


def test_a_task_knows_how_it_ended_and_why_it_left():
    task = Task(1, "net", REQUESTS, 2, 9, preemptible=True, reason="slack")
    assert (task.ended_at(5).stop, task.ended_at(5).reason) == (5, "slack")
    lost = task.lost([REQUESTS[0]])
    assert (lost.requests, lost.start, lost.stop, lost.reason) == ((REQUESTS[0],), 2, 2, "slack")
    assert Task(1, "net", REQUESTS, 2, 9).reason == "idle"
    assert len(set(REASONS)) == len(REASONS) == 9


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"arrival": math.nan}, "request 7 arrives at nan s"),
        ({"deadline": math.nan}, "deadline nan s"),
        ({"input_len": math.nan}, "request 7 has an input of length nan: give a length of 0 or more"),
        ({"input_len": math.inf}, "length inf"),
        ({"input_len": -1.0}, "length -1.0"),
    ],
)
def test_what_is_not_a_time_or_a_length_is_refused(values, message):
    with pytest.raises(UsageError, match=message):
        Request(7, "net", **{"arrival": 0.0, **values})
