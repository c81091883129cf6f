"""scripts/lint_rtl.py over modules of the tests; those of the units are `make lint`'s."""

import re

import pytest

from headrace.bitstreams.configurations import configuration_names
from headrace.bitstreams.sources import hls_folder

SOUND = """
module below #(parameter int Width = 4) (input logic [Width-1:0] in_i, output logic [Width-1:0] out_o);
  assign out_o = ~in_i;
endmodule
module top (input logic [3:0] in_i, output logic [3:0] out_o);
  below u_below (.in_i, .out_o);
endmodule
"""


@pytest.fixture(scope="module")
def lint(load_script):
    return load_script("lint_rtl")


@pytest.fixture
def found(lint, tmp_path):
    def check(text: str) -> set[str]:
        file = tmp_path / "top.sv"
        file.write_text(text)
        return {finding.rule for finding in lint.checked("top", [file], ())} - {"DECLFILENAME"}

    return check


def test_sound_modules_have_no_finding(found):
    assert found(SOUND) == set()


@pytest.mark.parametrize(
    ("old", "new", "rules"),
    [
        ("assign out_o = ~in_i", "assign out_o = {in_i, in_i}", {"WIDTHTRUNC"}),
        ("(.in_i, .out_o)", "(.in_i, .out_o());\n  assign out_o = '0", {"PINCONNECTEMPTY"}),
        ("assign out_o = ~in_i;", "assign out_o = ~in_i; logic kept; assign kept = in_i[0];", {"UNUSEDSIGNAL"}),
        ("~in_i;", "Width'(in_i);", {"useless-cast"}),
        ("~in_i;", "~in_j;", {"Error", "error"}),
        ("module top (", "module top import nothing::*; (", {"Error", "error"}),
    ],
)
def test_faults_are_found_by_the_tool_that_knows_them(found, old, new, rules):
    assert SOUND.count(old) == 1
    assert rules <= found(SOUND.replace(old, new))


def test_a_signal_is_unused_only_if_no_other_top_with_its_file_uses_it(lint):
    unused = lint.Finding("UNUSEDSIGNAL", "shared.sv", 3, lint.WHOLE + "'kept'")
    other = lint.Finding("WIDTHTRUNC", "shared.sv", 4, "")
    shared, alone = [hls_folder() / "shared.sv"], [hls_folder() / "alone.sv"]
    assert lint.together([{unused, other}, set()], [shared, shared]) == {other}
    assert lint.together([{unused}, {unused}], [shared, shared]) == {unused}
    assert lint.together([{unused}, set()], [shared, alone]) == {unused}


def test_every_compute_unit_and_configuration_is_checked(lint):
    tops = {(top, configuration) for top, configuration, _ in lint.TOPS}
    assert {path.parent.name for path in hls_folder().glob("*/kernel.xml")} <= {top for top, _ in tops}
    assert {("image_cu", name) for name in configuration_names()} <= tops
    assert {("image_stream", name) for name in configuration_names()} <= tops


def test_every_waiver_names_its_reason(lint):
    assert all(re.search(r"\w+ \w+", waiver.why) for waiver in lint.WAIVERS)
