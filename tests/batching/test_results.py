import pytest

from headrace.batching import AccountingError, Ledger, Request, Served, ServedTimes, summarize
from headrace.batching.results import percentiles_ms

REQUESTS = [Request(number, "net", 0.0) for number in range(4)]


def test_the_summary_of_a_small_run_by_hand():
    ledger = Ledger()
    for request in REQUESTS:
        ledger.submit(request)
    ledger.finish(REQUESTS[0])
    ledger.finish(REQUESTS[1])
    ledger.finish(REQUESTS[2])
    ledger.fail(REQUESTS[3])
    served = [
        Served(arrival=0, queued=0.1, started=0.2, finished=1, deadline=2, batch=2),
        Served(arrival=0, queued=0.2, started=0.2, finished=1, deadline=0.5, batch=2),
        Served(arrival=1, queued=1.0, started=1.4, finished=4, deadline=9, batch=1),
    ]
    result = summarize(ServedTimes.of(served), ledger, batch_size_mean=1.5, busy_s=3.4, workers=1, wall_s=5, seed=7)
    assert (result["requests"], result["finished"], result["failed"], result["shed"]) == (4, 3, 1, 0)
    assert result["throughput_rps"] == pytest.approx(3 / 4)
    assert result["latency_ms"]["p50"] == pytest.approx(1000) and result["latency_ms"]["max"] == pytest.approx(3000)
    assert result["queue_ms"] == pytest.approx((100 + 0 + 400) / 3)
    assert result["sla_violation_rate"] == pytest.approx(2 / 4)  # one late, one failed
    assert result["utilization"] == pytest.approx(3.4 / 4)


def test_each_percentile_is_the_latency_that_so_many_do_not_exceed():
    seconds = [number / 1000 for number in reversed(range(101))]
    assert percentiles_ms(seconds) == pytest.approx(
        {"mean": 50, "p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}
    )


def test_a_run_that_finished_nothing_has_no_latency():
    result = summarize(ServedTimes.of([]), Ledger(), batch_size_mean=None, busy_s=0, workers=1, wall_s=0, seed=None)
    assert result["throughput_rps"] is None and result["latency_ms"]["p99"] is None


def test_what_was_dropped_missed_its_sla_and_what_was_cancelled_had_none():
    ledger = Ledger()
    for request in REQUESTS:
        ledger.submit(request)
    for end, request in zip((ledger.finish, ledger.drop_late, ledger.cancel, ledger.turn_away), REQUESTS, strict=True):
        end(request)
    ledger.check()
    served = [Served(arrival=0, queued=0, started=0, finished=1, deadline=2, batch=1)]
    result = summarize(ServedTimes.of(served), ledger, batch_size_mean=1, busy_s=1, workers=1, wall_s=1, seed=0)
    assert list(result)[:6] == ["requests", "finished", "failed", "shed", "dropped", "cancelled"]
    assert list(result.values())[:6] == [4, 1, 0, 1, 1, 1]
    assert result["sla_violation_rate"] == pytest.approx(2 / 3)


def test_a_request_that_ends_at_its_deadline_is_not_late():
    ledger = Ledger()
    for request in REQUESTS[:2]:
        ledger.submit(request)
        ledger.finish(request)
    served = [Served(arrival=0, queued=0, started=0, finished=2, deadline=due, batch=1) for due in (2, 1.999)]
    result = summarize(ServedTimes.of(served), ledger, batch_size_mean=1, busy_s=1, workers=1, wall_s=1, seed=0)
    assert result["sla_violation_rate"] == 0.5


def test_a_request_ends_once():
    ledger = Ledger()
    ledger.submit(REQUESTS[0])
    with pytest.raises(AccountingError, match="submitted twice"):
        ledger.submit(REQUESTS[0])
    ledger.turn_away(REQUESTS[0])
    for end in (ledger.finish, ledger.fail, ledger.turn_away, ledger.drop_late, ledger.cancel):
        with pytest.raises(AccountingError, match="not in flight"):
            end(REQUESTS[0])
    ledger.check()
    assert (ledger.submitted, ledger.shed, ledger.in_flight) == (1, 1, 0)
    ledger.cancelled += 1
    with pytest.raises(AccountingError, match=r"1 shed . 0 dropped . 1 cancelled . 0 in flight"):
        ledger.check()
