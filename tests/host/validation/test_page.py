"""The page of a check, from its JSON."""

from headrace.host.validation.page import page
from headrace.host.validation.plan import Row, failed, row_of


def found(kind="cuda", **parts):
    device = {"torch": "2.13.0", "kind": kind, "name": "NVIDIA H100", "torchvision": None}
    return {"device": device, "small": False, "wall_s": 61.4, "parts": parts}


def part(*rows, error="", seconds=2.0):
    return {"rows": [row.to_dict() for row in rows], "error": error, "seconds": seconds}


def test_a_row_says_what_was_expected_what_was_measured_and_the_ratio():
    row = Row("resnet50, fp32, batch 1", "latency", "ms", 2.0, 3.0, "a | b\nc")
    text = page(found(profiles=part(row, Row("x", "latency", "ms", 2.0, 1.0))))
    assert "| resnet50, fp32, batch 1 | latency | 2 ms | 3 ms | 1.5 | a / b c |" in text.splitlines()
    sums = "It has 2 rows, and took 2 s. Measured / expected is 1 in the median, and 0.5 to 1.5 in all rows."
    assert sums in text and text.startswith("# GPU check: NVIDIA H100\n")
    assert "- name: NVIDIA H100" in text and "torchvision" not in text and "- size: full" in text


def test_a_number_that_is_missing_has_no_ratio():
    text = page(found(copies=part(Row("1 MB", "pinned", "GB/s", 6.8, None, "needs a GPU"))))
    assert "| 1 MB | pinned | 6.8 GB/s | - | - | needs a GPU |" in text
    assert "Measured / expected" not in text


def test_a_case_that_failed_says_why():
    text = page(
        found(nodes=part(failed("swin_t", "node by node", "ms", ValueError("no")), error="1 of its cases failed"))
    )
    assert "| swin_t | node by node | - | - | - | failed: ValueError: no |" in text


def test_a_part_that_failed_says_why_and_keeps_its_rows():
    row = Row("x", "latency", "ms", None, 1.0)
    text = page(found(live=part(row, error="it was stopped after 200 s"), server=part(error="no server")))
    assert (
        "**Failed**: it was stopped after 200 s. It has 1 rows, and took 2 s." in text
        and "| x | latency | - | 1 ms | - |  |" in text
    )
    assert "**Failed**: no server. It has 0 rows" in text


def test_a_page_of_the_cpu_says_that_predictions_are_of_a_gpu():
    assert "say nothing about a CPU" in page(found("cpu")) and "say nothing about a CPU" not in page(found("cuda"))


def test_a_row_comes_back_from_json():
    row = Row("x", "latency", "ms", None, 1.0, details={"batch": 1})
    assert row_of(row.to_dict()) == row
