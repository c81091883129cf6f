"""The properties of hls/formal hold in the RTL, and fail when the RTL is changed."""

import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import builds
import pytest
from builds import built
from includes import update

from headrace.bitstreams.errors import BuildError
from headrace.bitstreams.sources import hls_folder

HLS = hls_folder()
MEASURED = Path(__file__).parents[2] / "docs" / "results" / "measured" / "formal.json"

spec = importlib.util.spec_from_file_location("prove", HLS / "formal" / "prove.py")
prove = importlib.util.module_from_spec(spec)
sys.modules["prove"] = prove
spec.loader.exec_module(prove)


def cases(entries, name, is_slow):
    return [
        pytest.param(entry, id=name(entry), marks=[pytest.mark.slow] if is_slow(entry) else []) for entry in entries
    ]


SLOW = {proof.name for proof in prove.PROOFS if proof.slow}
# One mutant of each proof shows in `make test` that the proof can fail. The proofs themselves all run there.
FIRST = {mutant.proof: mutant for mutant in reversed(prove.MUTANTS)}


def once(proof: prove.Proof, mutant: prove.Mutant | None, check: Callable[[], None]) -> None:
    """Check what the tools find in a circuit, unless it is known to hold for these sources: a proof stays true, and it
    is kept as models are. A check that fails is not kept."""
    digest = hashlib.sha256(repr((proof, mutant, version("pyosys"))).encode())
    update(digest, [*prove.sources(proof, HLS), Path(prove.__file__), Path(__file__)])

    def build(target: Path) -> None:
        check()
        target.touch()

    name = proof.name if mutant is None else f"{proof.name}_{mutant.name}"
    built(f"proof_{re.sub(r'[^a-z0-9]+', '_', name)}", digest.hexdigest(), "", build)


@pytest.mark.parametrize("proof", cases(prove.PROOFS, lambda p: p.name, lambda p: p.slow))
def test_every_property_is_proved_and_every_cover_reached(proof, tmp_path):
    def check() -> None:
        result = prove.prove(proof, HLS, tmp_path)
        assert [name for name, state in result.properties.items() if state != prove.PROVED] == []
        assert [name for name, clock in result.covers.items() if clock is None] == []
        assert result.good and result.properties and result.covers

    once(proof, None, check)


@pytest.mark.parametrize(
    "mutant",
    cases(prove.MUTANTS, lambda m: f"{m.proof}: {m.name}", lambda m: m.proof in SLOW or m is not FIRST[m.proof]),
)
def test_a_changed_unit_fails_the_named_property(mutant, tmp_path):
    def check() -> None:
        assert prove.caught(mutant, HLS, tmp_path) is not None

    once(prove.proof_of(mutant), mutant, check)


def test_only_what_holds_is_kept_and_only_for_the_same_sources(tmp_path, monkeypatch):
    monkeypatch.setattr(builds, "BUILD", tmp_path / "kept")
    proof, checked = prove.Proof("stream_fifo"), []

    def check() -> None:
        checked.append(None)
        assert len(checked) > 1

    with pytest.raises(AssertionError):
        once(proof, None, check)
    for _ in range(2):
        once(proof, None, check)
    assert len(checked) == 2
    copy = tmp_path / "hls"
    prove.copy_rtl(HLS, copy)
    unit = copy / "rtl" / "stream_fifo.sv"
    unit.write_text(unit.read_text() + "// changed\n")
    monkeypatch.setattr(sys.modules[__name__], "HLS", copy)
    once(proof, None, check)
    assert len(checked) == 3


def test_every_proof_has_a_mutant():
    assert {mutant.proof for mutant in prove.MUTANTS} == {proof.name for proof in prove.PROOFS}


def test_contradictory_assumptions_are_found(tmp_path):
    """All properties hold then, but no cover is reached."""
    copy = tmp_path / "hls"
    prove.copy_rtl(HLS, copy)
    top = copy / "formal" / "f_stream_fifo.sv"
    text = top.read_text()
    top.write_text(
        text.replace(
            "    if (past_q) begin\n", "    m_never: assume (!valid_i && valid_i);\n    if (past_q) begin\n", 1
        )
    )
    assert top.read_text() != text
    result = prove.prove(prove.Proof("stream_fifo"), copy, tmp_path)
    assert set(result.covers.values()) == {None} and not result.good
    assert "m_never" in result.assumptions


def test_a_mutant_whose_text_is_gone_is_an_error(tmp_path):
    mutant = prove.Mutant("stream_fifo", "none", "a_order", "rtl/stream_fifo.sv", "no such text", "")
    with pytest.raises(BuildError, match=r"must stand in rtl/stream_fifo\.sv once, not 0 times"):
        prove.caught(mutant, HLS, tmp_path)


def test_the_text_of_every_mutant_stands_in_its_file():
    """Mutants of slow proofs are among them, because those proofs do not run in `make test`."""
    gone = [m for m in prove.MUTANTS if (HLS / m.file).read_text().count(m.old) != 1]
    assert not gone, [(m.proof, m.name) for m in gone]


@pytest.mark.parametrize("proof", [proof for proof in prove.PROOFS if not proof.module], ids=lambda proof: proof.name)
def test_no_property_is_lost_on_the_way(proof):
    """An optimiser may drop a property that can never fail. Such a property would say nothing."""
    files = prove.needed_files(proof.top, sorted((HLS / "formal").glob("*.sv")))
    labels = re.findall(r"\b(\w+): (?:assert|assume|cover)\b", "".join(file.read_text() for file in files))
    (found,) = [each for each in json.loads(MEASURED.read_text())["proofs"] if each["name"] == proof.name]
    assert sorted(labels) == sorted([*found["properties"], *found["covers"], *found["assumptions"]])


def test_the_table_has_all_proofs_and_mutants():
    """If this fails: make -C hls/formal, then scripts/units_reference.py."""
    figures = json.loads(MEASURED.read_text())
    assert [each["name"] for each in figures["proofs"]] == [proof.name for proof in prove.PROOFS]
    assert [(each["proof"], each["name"]) for each in figures["mutants"]] == [(m.proof, m.name) for m in prove.MUTANTS]
    assert all(each["clock"] is not None for each in figures["mutants"])
    assert all(set(each["properties"].values()) == {prove.PROVED} for each in figures["proofs"])
