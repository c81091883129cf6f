#!/usr/bin/env python3
"""Prove the properties of the modules that units share, with Yosys and the ABC of the package pyosys.

    .venv/bin/python hls/formal/prove.py [PROOF ...] [--all] [--mutants] [--json FILE]

Without names, the proofs that are not slow run; --all adds the slow ones. A proof is a module `f_NAME` of this folder.
It has properties (`assert`, label a_), helpers that make the properties inductive (label h_, proved as well),
assumptions about the neighbours (`assume`, label m_) and covers (`cover`, label c_). Inputs are free in every clock,
and so is the reset after the first clock.

All properties and helpers of a proof are proved together, so that each may use the others. The method is `induction`
if they hold in the first two clocks, and in any clock after one in which they hold. If not, it is `PDR`
(property-directed reachability), for which ABC finds what is missing. A property that fails has the clock of its
shortest trace (`BMC`, bounded model checking). A cover must be reached: contradictory assumptions would reach none.
With --mutants, each line of MUTANTS changes the RTL in a copy, and the named property must fail.

The exit status is 1 unless all properties are proved, all covers reached and all mutants caught. Seconds are those of
the processor."""

import argparse
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headrace.batching.errors import HeadraceError
from headrace.bitstreams.errors import BuildError, MissingExtra
from headrace.bitstreams.verilate import needed_files, rtl_sources

FOLDER = Path(__file__).resolve().parent
TIMEOUT_S = 3600  # by the clock: only a hang takes so long
PROVED, DISPROVED, UNDECIDED = "proved", "disproved", "undecided"

# A cover is reached where the assertion of its opposite fails.
COVER = r"module \$cover (input A, input EN); \$assert _TECHMAP_REPLACE_ (.A(!A), .EN(EN)); endmodule"
# The step of an induction begins in any state in which all assertions hold.
STEP = r"""
module \$assert (input A, input EN);
  wire first;
  \$initstate initial_state (.Y(first));
  \$assert _TECHMAP_REPLACE_ (.A(A), .EN(EN && !first));
  \$assume holds (.A(A), .EN(EN && first));
endmodule
"""
YOSYS = "import sys; from pyosys import libyosys as y; d = y.Design(); [y.run_pass(c, d) for c in sys.argv[1:]]"


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof: module `f_NAME`, or another `module` with `parameters` (`NAME=VALUE`).

    `cut` names signals within it that become free, such as a path of data that no property reads. `cpu_s` bounds each
    run of ABC, and covers are looked for in `clocks` clocks. With `any_state` registers
    without a value at the start begin with any, though the optimiser could show that they never take it."""

    name: str
    cut: tuple[str, ...] = ()
    cpu_s: int = 20
    clocks: int = 40
    module: str = ""
    parameters: tuple[str, ...] = ()
    slow: bool = False
    any_state: bool = False

    @property
    def top(self) -> str:
        return f"f_{self.module or self.name}"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one place of the RTL that must make property `fails` of the proof fail. `file` is relative to hls/,
    and `old` stands in it once. `parameters` are set where the failure would otherwise come late."""

    proof: str
    name: str
    fails: str
    file: str
    old: str
    new: str
    parameters: tuple[str, ...] = ()


@dataclass(slots=True)
class Result:
    """The outcome of a proof. `covers` has the clock in which each was reached, or None."""

    name: str
    slow: bool
    method: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    failed_at: dict[str, int] = field(default_factory=dict)
    covers: dict[str, int | None] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)
    not_inductive: list[str] = field(default_factory=list)
    cpu_s: float = 0.0

    @property
    def good(self) -> bool:
        proved = all(state == PROVED for state in self.properties.values())
        return proved and bool(self.covers) and None not in self.covers.values()


@dataclass(frozen=True, slots=True)
class Model:
    """A circuit in AIGER's format, with the names of its properties in the order of its outputs."""

    path: Path
    names: tuple[str, ...]
    assumptions: tuple[str, ...]


def cuts(names: str) -> tuple[str, ...]:
    """Return the paths of signals of the unit of a proof."""
    return tuple(f"u.{name}" for name in names.split())


# The words of axi_read and axi_write, which have a proof of their own.
AXI_CUTS = cuts("gen_small.u_fifo.data_o")
# All that the state machine of band_decoder reads.
BAND_CUTS = (
    *("placing_q", "pass_end_q", "interval_end_q", "begin_block", "bit_missing", "seek", "block_end", "has_dc_q"),
    *("last_of_interval", "looked_up_q", "symbol_error", "restarted", "token_valid", "rest_end"),
)
# The words of store, and what f_store_pack and a multiplier have.
STORE_CUTS = (
    *(f"u.gen_plane?{plane}?.u_fifo.data_o" for plane in range(3)),
    *cuts("push pushed given_q pixels_q"),
)
STORE_LIVE_CUTS = tuple(f"u_store.{name}" for name in STORE_CUTS)
# The depths of the queues of all units, but for 4, which the proofs have without parameters.
STREAM_DEPTHS = (2, 8, 16, 32, 64)
STREAM_SLICES = (2, 4)  # of a word, but for 1
BLOCK_DEPTHS = (128, 256, 512)
PROOFS = (
    Proof("stream_fifo"),
    *(Proof(f"stream_fifo_{n}", module="stream_fifo", parameters=(f"Depth={n}",), slow=True) for n in STREAM_DEPTHS),
    *(
        Proof(f"stream_fifo_{n}_slices", module="stream_fifo", parameters=("Width=4", f"Slices={n}"))
        for n in STREAM_SLICES
    ),
    Proof("stream_register"),
    Proof("block_fifo"),
    *(Proof(f"block_fifo_{n}", module="block_fifo", parameters=(f"Depth={n}",), slow=True) for n in BLOCK_DEPTHS),
    Proof("beat_queue", slow=True),
    Proof("axi_read", cut=AXI_CUTS),
    Proof("axi_read_any_beats", module="axi_read", parameters=("Lawful=0",), cut=AXI_CUTS, slow=True),
    Proof("axi_read_rest"),
    Proof("axi_read_rest_any_beats", module="axi_read_rest", parameters=("Lawful=0",)),
    Proof("axi_read_share"),
    Proof("axi_write_share", slow=True),
    Proof("axi_write_share_any_answers", module="axi_write_share", parameters=("Lawful=0",), slow=True),
    Proof("axi_read_upsize"),
    Proof("axi_write_upsize"),
    Proof("axi_control"),
    Proof("band_decoder", cut=tuple(f"u.{name}" for name in BAND_CUTS), any_state=True),
    Proof("axi_write", cut=AXI_CUTS),
    Proof("axi_read_live", cut=AXI_CUTS),
    Proof("axi_write_live", cut=AXI_CUTS),
    Proof("record_write"),
    Proof(
        "job_ring",
        cut=tuple(f"u.u_read.{name}_o" for name in ("idle", "error", "word", "word_valid")),
        clocks=50,
        slow=True,
    ),
    Proof("store_pack"),
    Proof("store_pack_32", module="store_pack", parameters=("Bytes=32",)),
    Proof("store", cut=STORE_CUTS, cpu_s=120, slow=True),
    Proof("store_32", module="store", parameters=("Bytes=32",), cut=STORE_CUTS, cpu_s=120, slow=True),
    Proof("store_live", cut=STORE_LIVE_CUTS, cpu_s=240, slow=True),
    Proof("store_live_32", module="store_live", parameters=("Bytes=32",), cut=STORE_LIVE_CUTS, cpu_s=240, slow=True),
    Proof("cu_shell", cut=("u.start", "u.next")),
    Proof("marker_states", any_state=True),
    Proof("reader_states", cut=cuts("rom_byte"), any_state=True),
    Proof(
        "entropy_states",
        cut=cuts("s1_valid_q s1_q error image_done interval_done restart file_end end_beat fifo_ready"),
        any_state=True,
    ),
    Proof("symbol_pairs_states", cut=cuts("code_q"), any_state=True),
    Proof("progressive_states", cut=cuts("decoded sent read_idle write_idle written_valid status_q"), any_state=True),
    Proof(
        "wav_states",
        cut=cuts("four_valid four_q same_q left_q size_q small_q brief_q rest_q beyond_q last_taken some_q status_q"),
        any_state=True,
    ),
    Proof("resample_states", cut=cuts("ended sound_q load_idle"), any_state=True),
    Proof("mel_states", cut=cuts("value_valid_o value_last frames_left_q frames_idle sound_q none_q"), any_state=True),
    Proof(
        "sound_store_states",
        cut=cuts("take_value last_value_q moves last_band pipe_empty command_q writer_idle values_q fits_q"),
        any_state=True,
    ),
    Proof("frame_states", cut=cuts("mean_ready mean"), any_state=True),
    Proof("frame_mean_states", cut=cuts("sum_q mean_o blocks_q"), any_state=True),
    Proof("mel_normalize_states", cut=cuts("last_statistics last_value empty"), any_state=True),
    Proof("tensor_rows_states", any_state=True),
)

FIFO, REGISTER, BLOCK, BEATS = "rtl/stream_fifo.sv", "rtl/stream_register.sv", "rtl/block_fifo.sv", "rtl/beat_queue.sv"
CONTROL = "rtl/axi/axi_control.sv"
BAND = "decode/progressive/band_decoder.sv"
READ, READ_SHARE = "rtl/axi/axi_read.sv", "rtl/axi/axi_read_share.sv"
READ_REST = "rtl/axi/axi_read_rest.sv"
READ_UPSIZE, WRITE_UPSIZE = "rtl/axi/axi_read_upsize.sv", "rtl/axi/axi_write_upsize.sv"
WRITE, WRITE_SHARE = "rtl/axi/axi_write.sv", "rtl/axi/axi_write_share.sv"
RECORD, SHELL = "rtl/axi/record_write.sv", "rtl/axi/cu_shell.sv"
HUFFMAN, FRAME_HEADER = "decode/parse/huffman_definition.sv", "decode/parse/frame_header.sv"
MARKER, ENTROPY = "decode/parse/marker_machine.sv", "decode/entropy/entropy_decoder.sv"
PAIRS = "decode/entropy/symbol_pairs.sv"
PROGRESSIVE = "decode/progressive/progressive_decoder.sv"
WAV, RESAMPLE, COUNT = "wav/wav.sv", "resample/resample.sv", "resample/resample_count.sv"
AUDIO_STORE = "audio_mel_cu/sound_store.sv"
MEL, FRAME, FRAME_MEAN = "mel/mel.sv", "mel/frame.sv", "mel/frame_mean.sv"
TENSOR_ROWS = "audio_norm_cu/tensor_rows.sv"
NORMALIZE, NORM_STATISTICS = "mel_normalize/mel_normalize.sv", "mel_normalize/norm_statistics.sv"
RING, STORE, PACK = "image_cu/job_ring.sv", "image_cu/store.sv", "image_cu/store_pack.sv"
MUTANTS = (
    Mutant(
        *("stream_fifo", "full one word too late", "a_full_takes_none", FIFO),
        *("ready_o <= count_o != ($clog2(Depth) + 1)'(Depth - 1)", "ready_o <= count_o != ($clog2(Depth) + 1)'(Depth)"),
    ),
    Mutant(
        *("stream_fifo", "empty one word too early", "a_shown_in_time", FIFO),
        *("valid_o <= count_o != ($clog2(Depth) + 1)'(1)", "valid_o <= count_o > ($clog2(Depth) + 1)'(2)"),
    ),
    Mutant(
        *("stream_fifo", "writes when full", "a_order", FIFO),
        *("if (push) memory[tail_q]", "if (valid_i) memory[tail_q]"),
    ),
    Mutant(
        *("stream_register", "the word that waits is lost", "a_order", REGISTER),
        *("ready_o ? data_i : waiting_q", "data_i"),
    ),
    Mutant(
        *("stream_register", "takes a third word", "a_count", REGISTER),
        *("end else if (valid_i) begin\n      ready_o <= 1'b0;", "end else if (valid_i) begin\n      ready_o <= 1'b1;"),
    ),
    Mutant(
        *("stream_register", "the word shown does not wait", "a_stable", REGISTER),
        *("if (ready_i || !valid_o) data_o", "if (ready_i || ready_o) data_o"),
    ),
    *(
        Mutant(
            *(f"stream_fifo_{depth}", "a word waits while one enters", "a_shown_in_time", FIFO),
            *("if (push) valid_o <= 1'b1;", "if (push) valid_o <= valid_o;"),
        )
        for depth in STREAM_DEPTHS
    ),
    *(
        Mutant(
            *(f"stream_fifo_{n}_slices", "a slice does not go on", "a_order", FIFO),
            *("if (pop) part_head_q <= part_head_q + 1'b1;", "part_head_q <= part_head_q;"),
        )
        for n in STREAM_SLICES
    ),
    *(
        Mutant(
            *(f"block_fifo_{depth}", "keeps the last word for ever", "a_shown_in_time", BLOCK),
            *("if (write) some_q <= 1'b1;", "if (write) some_q <= some_q || count_o != '0;"),
        )
        for depth in BLOCK_DEPTHS
    ),
    Mutant(
        *("block_fifo", "reads over a word that waits", "a_order", BLOCK),
        *("some_q && claimable_q", "some_q"),
    ),
    Mutant(
        *("block_fifo", "takes a word when full", "a_count_of_memory", BLOCK),
        *("assign write = valid_i && ready_o", "assign write = valid_i"),
    ),
    Mutant(
        *("block_fifo", "keeps the last word for ever", "a_shown_in_time", BLOCK),
        *("if (write) some_q <= 1'b1;", "if (write) some_q <= some_q || count_o != '0;"),
    ),
    Mutant(
        *("beat_queue", "the last beat does not wait", "a_ok_is_passed", BEATS),
        *("(valid && (!last || pass_i))", "valid"),
    ),
    Mutant(
        *("beat_queue", "the end cuts a beat off", "a_beat_stays", BEATS),
        *("end_i && (!valid || (last && !pass_i))", "end_i"),
    ),
    Mutant(
        *("beat_queue", "room where little is left", "a_queue_has_room", BEATS),
        *("($clog2(Depth) + 1)'(Depth / 2)", "($clog2(Depth) + 1)'(Depth / 2 + 1)"),
    ),
    Mutant(
        *("axi_read", "bursts without room", "a_queue_has_room", READ),
        *("room_q <= free_q >= CountBits'(BurstWords)", "room_q <= free_q != '0"),
    ),
    Mutant(
        *("axi_read", "the border is ignored", "a_within_4_kib", READ),
        *("(BurstBits + 1)'(BurstWords) - {1'b0, next_q[BurstBits-1:0]}", "(BurstBits + 1)'(BurstWords)"),
    ),
    Mutant(
        *("axi_read", "an address does not wait", "a_ar_stable", READ),
        *("sized_q && !stop_i && !arvalid_o &&", "sized_q && !stop_i &&"),
    ),
    Mutant(
        *("axi_read", "the last burst is forgotten", "a_all_asked", READ),
        *("asks_q <= left_q != 29'(size_q)", "asks_q <= left_q > 29'(size_q) + 29'd1"),
    ),
    Mutant(
        *("axi_read", "one word too few is given", "a_all_given", READ),
        *("owed_q != 29'd1", "owed_q > 29'd2"),
    ),
    Mutant(
        *("axi_read", "a carry is lost", "a_addresses_follow", READ),
        *("upper_q <= upper_q + 32'(carry_q)", "upper_q <= upper_q"),
    ),
    Mutant(
        *("axi_read", "idle with words under way", "a_idle_owes_nothing", READ),
        *("!asks_q && !flies_q && !arvalid_o", "!asks_q && !arvalid_o"),
    ),
    Mutant(
        *("axi_read", "a reset's late words belong to the next run", "a_account", READ),
        *("else if (!flies_q) stale_q <= 1'b0", "else stale_q <= 1'b0"),
    ),
    Mutant(
        *("axi_read_any_beats", "a late word is counted", "a_never_wraps", READ),
        *("rvalid_i && rready_o && flies_q", "rvalid_i && rready_o"),
    ),
    Mutant(
        *("axi_read", "a burst that a reset withdraws is waited for", "a_account", READ),
        *("assign asked  = arvalid_o && arready_i", "assign asked  = issue"),
    ),
    Mutant(
        *("axi_read_rest", "words from before a reset are passed on", "a_none_while_stale", READ_REST),
        *("rvalid_i && !stale_q && flying_q != '0", "rvalid_i && flying_q != '0"),
    ),
    Mutant(
        *("axi_read_rest", "a reset forgets the bursts under way", "a_account", READ_REST),
        *("if (forget) flying_q", "if (forget || !rst_ni) flying_q"),
    ),
    Mutant(
        *("axi_read_rest_any_beats", "a late word reaches the reader", "a_word_has_a_burst", READ_REST),
        *("rvalid_i && !stale_q && flying_q != '0", "rvalid_i && !stale_q"),
    ),
    Mutant(
        *("axi_read_share", "the turn moves while an address waits", "a_ar_stable", READ_SHARE),
        *("!arvalid_i[turn_q] || arready_i", "1'b1"),
    ),
    Mutant(
        *("axi_read_share", "the first reader goes first", "a_all_have_a_turn", READ_SHARE),
        *("place = 32'(turn_q) + i", "place = i"),
    ),
    Mutant(
        *("axi_read_share", "all readers are told ready", "a_one_passes", READ_SHARE),
        *("arready_i && turn_q == IdBits'(i)", "arready_i"),
    ),
    Mutant(
        *("axi_read_share", "a word goes to the reader that has the turn", "a_word_reaches_its_reader", READ_SHARE),
        *("rvalid_i && rid_i == IdBits'(i)", "rvalid_i && turn_q == IdBits'(i)"),
    ),
    Mutant(
        *("axi_write_share", "words of the writer that has the turn", "a_words_in_order", WRITE_SHARE),
        *("assign owner = order_q[0]", "assign owner = turn_q"),
    ),
    Mutant(
        *("axi_write_share", "more bursts wait than there is room for", "a_waiting_is_bounded", WRITE_SHARE),
        *("assign room  = !waiting_q[Ahead]", "assign room  = 1'b1"),
    ),
    Mutant(
        *("axi_write_share", "an address moves with the turn", "a_aw_stable", WRITE_SHARE),
        *("!awvalid_i[turn_q] || take", "1'b1"),
    ),
    Mutant(
        *("axi_write_share", "answers from before a reset are passed on", "a_none_while_stale", WRITE_SHARE),
        *("answered && !stale_q && bid_i", "answered && bid_i"),
    ),
    Mutant(
        *("axi_write_share", "a reset forgets the bursts under way", "a_account", WRITE_SHARE),
        *("if (forget) unanswered_q", "if (forget || !rst_ni) unanswered_q"),
    ),
    Mutant(
        *("axi_write_share_any_answers", "a late answer reaches a writer", "a_answer_has_a_burst", WRITE_SHARE),
        *("answered && !stale_q && bid_i", "bvalid_i && !stale_q && bid_i"),
    ),
    Mutant(
        *("axi_read_upsize", "the beat of the last word is not asked for", "a_to_the_last_word", READ_UPSIZE),
        *("last_word = 9'(arlen_i) + 9'(araddr_i[4])", "last_word = 9'(arlen_i)"),
    ),
    Mutant(
        *("axi_read_upsize", "a word behind the last is given", "a_beat_leaves_when_given", READ_UPSIZE),
        *("upper || (rlast_i && unwanted.upper)", "upper"),
    ),
    Mutant(
        *("axi_read_upsize", "all beats begin as the first", "a_word_from_its_place", READ_UPSIZE),
        *("(first[rid_i] && unwanted.lower)", "unwanted.lower"),
    ),
    Mutant(
        *("axi_read_upsize", "bursts begin as the newest", "a_word_from_its_place", READ_UPSIZE),
        *("oldest_q <= others_q ? bursts[head_q] : asked", "oldest_q <= asked"),
    ),
    Mutant(
        *("axi_read_upsize", "a reader has more bursts than room", "a_bursts_are_bounded", READ_UPSIZE),
        *("arvalid_o = arvalid_i && !full[arid_i] && !stale_q", "arvalid_o = arvalid_i && !stale_q"),
    ),
    Mutant(
        *("axi_read_upsize", "an address does not wait for words from before a reset", "a_none_while_old", READ_UPSIZE),
        *("else if (some == '0) stale_q <= 1'b0", "else stale_q <= 1'b0"),
    ),
    Mutant(
        *("axi_read_upsize", "what a reset lost is waited for", "a_forgets_in_time", READ_UPSIZE),
        *("assign forget   = stale_q && quiet_q == '1", "assign forget   = 1'b0"),
    ),
    Mutant(
        *("axi_read_upsize", "the lower word comes twice", "a_word_from_its_place", READ_UPSIZE),
        *("upper ? rdata_i[255:128] : rdata_i[127:0]", "rdata_i[127:0]"),
    ),
    Mutant(
        *("axi_write_upsize", "the beat of the last word is not asked for", "a_to_the_last_word", WRITE_UPSIZE),
        *("(9'(awlen_i) + 9'(awaddr_i[4])) >> 1", "9'(awlen_i) >> 1"),
    ),
    Mutant(
        *("axi_write_upsize", "a burst writes bytes of the one before", "a_no_other_byte", WRITE_UPSIZE),
        *("lower_strobe_q <= whole ? '0 : wstrb_i", "lower_strobe_q <= wstrb_i"),
    ),
    Mutant(
        *("axi_write_upsize", "a burst begins where the one before ended", "a_byte_in_its_place", WRITE_UPSIZE),
        *("assign upper    = first_q ? odd : upper_q", "assign upper    = upper_q"),
    ),
    Mutant(
        *("axi_write_upsize", "a word does not wait for memory", "a_beat_leaves_whole", WRITE_UPSIZE),
        *("burst_valid && (wready_i || !whole)", "burst_valid"),
    ),
    Mutant(
        *("axi_write_upsize", "an address without room", "a_waiting_is_bounded", WRITE_UPSIZE),
        *("assign awvalid_o = awvalid_i && room", "assign awvalid_o = awvalid_i"),
    ),
    Mutant(
        *("axi_write_upsize", "a reset keeps half a beat", "a_no_other_byte", WRITE_UPSIZE),
        *("first_q        <= 1'b1;\n        lower_strobe_q <= '0;", "first_q        <= 1'b1;"),
    ),
    Mutant(
        *("axi_control", "an answer does not wait", "a_b_stable", CONTROL),
        *("else if (bready_i) bvalid_o <= 1'b0", "else bvalid_o <= 1'b0"),
    ),
    Mutant(
        *("axi_control", "a read overwrites one that waits", "a_r_stable", CONTROL),
        *("if (read) rdata_o <= word", "if (raddr_full_q) rdata_o <= word"),
    ),
    Mutant(
        *("axi_control", "a start is lost behind the run before", "a_start_follows_its_write", CONTROL),
        *("wstrb_q[0] && wdata_q[0]) start_o", "wstrb_q[0] && wdata_q[0] && !ready_i) start_o"),
    ),
    Mutant(
        *("axi_control", "strobes are ignored", "a_argument_is_what_was_written", CONTROL),
        *("ArgumentOffset[i] && wstrb_q[j]", "ArgumentOffset[i]"),
    ),
    Mutant(
        *("axi_control", "an address without a word is a write", "a_answer_has_a_write", CONTROL),
        *("waddr_full_q && wdata_full_q &&", "waddr_full_q &&"),
    ),
    Mutant(
        *("band_decoder", "no state leads out of none", "a_none_leads_to_rest", BAND),
        *("state_d = state_q == '0 ? only(StRest) : '0;", "state_d = '0;"),
    ),
    Mutant(
        *("band_decoder", "a state without a successor", "a_one_state_leads_to_one", BAND),
        *("if (state_q[StRead]) state_d |= only(StTake);", ""),
    ),
    Mutant(
        *("axi_write", "no limit of bursts under way", "a_outstanding", WRITE),
        *("job_room && outstanding_q != '1;", "job_room;"),
        ("OutstandingBits=2",),
    ),
    Mutant(
        *("axi_write", "the border is ignored", "a_within_4_kib", WRITE),
        *("(BurstBits + 1)'(BurstWords) - {1'b0, next_q[BurstBits-1:0]}", "(BurstBits + 1)'(BurstWords)"),
    ),
    Mutant(
        *("axi_write", "a word does not wait", "a_w_stable", WRITE),
        *("fifo_valid && (!wvalid_o || wready_i)", "fifo_valid"),
    ),
    Mutant(
        *("axi_write", "a burst is issued before its words", "a_data_is_there", WRITE),
        *("words >= (CountBits + 1)'(size_q)", "words != '0"),
    ),
    Mutant(
        *("axi_write", "an address does not wait", "a_aw_stable", WRITE),
        *("if (!awvalid_o) awaddr_o <=", "if (sized_q) awaddr_o <="),
    ),
    Mutant(
        *("axi_write", "wlast a word early", "a_last", WRITE),
        *("assign last       = beat_q + 1'b1 == job_words", "assign last       = beat_q + 1'b1 >= job_words - 1'b1"),
    ),
    Mutant(
        *("axi_write", "AWLEN is the number of words", "a_length", WRITE),
        *("awlen_o <= 8'(size_q - 1'b1)", "awlen_o <= 8'(size_q)"),
    ),
    Mutant(
        *("axi_write", "an address survives a reset", "a_silent_after_reset", WRITE),
        *("awvalid_o     <= 1'b0;\n", "\n"),
    ),
    Mutant(
        *("axi_write", "data without an address", "a_words_after_address", WRITE),
        *("if (issue) awvalid_o <= 1'b1;", "if (issue && !size_q[0]) awvalid_o <= 1'b1;"),
    ),
    Mutant(
        *("axi_control", "a write waits for a read", "a_write_is_answered", CONTROL),
        *("(!bvalid_o || bready_i);\n\n  always_ff", "(!bvalid_o || bready_i) && !rvalid_o;\n\n  always_ff"),
    ),
    Mutant(
        *("axi_control", "a read is taken while none is answered", "a_read_is_taken", CONTROL),
        *("else if (read) raddr_full_q <= 1'b0;", "else if (read && !rvalid_o) raddr_full_q <= 1'b0;"),
    ),
    Mutant(
        *("axi_read_live", "a word that left gives no room", "a_moves_in_time", READ),
        *(" + CountBits'(popped_q);", ";"),
    ),
    Mutant(
        *("axi_read_live", "what a reset lost is waited for", "a_moves_in_time", READ),
        *("assign forget    = stale_q && quiet_q == '1", "assign forget    = 1'b0"),
    ),
    Mutant(
        *("axi_write_live", "a burst waits for a word of the next", "a_moves_in_time", WRITE),
        *("words >= (CountBits + 1)'(size_q)", "words > (CountBits + 1)'(size_q)"),
    ),
    Mutant(
        *("axi_write_live", "an answer is not counted", "a_moves_in_time", WRITE),
        *("+ OutstandingBits'(issue) - OutstandingBits'(answer)", "+ OutstandingBits'(issue)"),
    ),
    Mutant(
        *("record_write", "the second address does not wait", "a_in_order", RECORD),
        *("awvalid_o = addresses_q == 2'd2 || (addresses_q == 2'd1 && !hold)", "awvalid_o = addresses_q != '0"),
    ),
    Mutant(
        *("record_write", "both words to one address", "a_addresses_follow", RECORD),
        *("address_q <= address_q + 1'b1", "address_q <= address_q"),
    ),
    Mutant(
        *("record_write", "an error is not told", "a_error_is_told", RECORD),
        *("if (bvalid_i && bready_o && bresp_i[1])", "if (1'b0)"),
    ),
    Mutant(
        *("record_write", "the second word waits for itself", "a_ends_in_time", RECORD),
        *("ordered_q && answers_q == 2'd2", "ordered_q && answers_q != '0"),
    ),
    Mutant(
        *("job_ring", "the number does not count", "a_whole_behind_its_number", RING),
        *("right ? StFetch : last_look ? StOver : StPause", "StFetch"),
    ),
    Mutant(
        *("job_ring", "the slot is asked for too early", "a_asks_for_the_slot", RING),
        *("if (step_q[1:0] == 2'd2) state_d = StAsk", "if (step_q[1:0] == 2'd1) state_d = StAsk"),
    ),
    Mutant(
        *("job_ring", "a range is not checked", "a_bad_if_and_only_if", RING),
        *("tensor_end_q > {1'b0, given_q.tensor_capacity} ||", ""),
    ),
    Mutant(
        *("job_ring", "a carry is lost", "a_bases_are_added", RING),
        *("given_q.jpeg[63:32] + 32'(jpeg_carry_q)", "given_q.jpeg[63:32]"),
    ),
    Mutant(
        *("job_ring", "looks have no end", "a_looks_count", RING),
        *("left_q <= left_q - 1'b1", "left_q <= left_q"),
    ),
    Mutant(
        *("job_ring", "a job waits for the one that runs", "a_job_in_time", RING),
        *("if (idle_o && step_q != '0)", "if (idle_o && step_q != '0 && waiting_i)"),
        ("Late=2",),
    ),
    Mutant(
        *("store", "beats are stopped too late", "a_queue_has_room", STORE),
        *("localparam int unsigned Margin = 8", "localparam int unsigned Margin = 2"),
        ("Depth=8",),
    ),
    Mutant(
        *("store", "what does not fit is written", "a_nothing_of_a_bad_frame", STORE),
        *("fits_q ? StTake : StDrain", "StTake"),
    ),
    Mutant(
        *("store", "a byte more than the capacity fits", "a_planes_inside", STORE),
        *("bytes_q <= 36'(capacity_i)", "bytes_q <= 36'({capacity_i[31:1], 1'b1})"),
    ),
    Mutant(
        *("store", "idle before the answers", "a_idle_is_complete", STORE),
        *("waiting_q == '0 && outstanding_q == '0 && !issue", "waiting_q == '0 && !issue"),
    ),
    Mutant(
        *("store", "all planes begin in one place", "a_addresses_follow", STORE),
        *("{1'b0, address_i[31:4]} + {1'b0, offset[p][31:4]}", "{1'b0, address_i[31:4]}"),
    ),
    Mutant(
        *("store", "a word leaves another plane, too", "a_words_in_place", STORE),
        *("fifo_ready = job.plane & {3{advance}}", "fifo_ready = (job.plane | job.plane >> 1) & {3{advance}}"),
    ),
    Mutant(
        *("store", "a word does not wait", "a_payload_stable", STORE),
        *("room       = !wvalid_o || wready_i;", "room       = 1'b1;"),
    ),
    Mutant(
        *("store", "the frame's bytes go on while planes begin", "a_packer_is_asked_in_order", STORE),
        *("assign flush = state_q == StFlush && step_q == 3'd1", "assign flush = state_q == StFlush && step_q == 3'd0"),
    ),
    Mutant(
        *("store_32", "planes begin in the lower half of a word", "a_planes_begin_in_their_lane", STORE),
        *("ByteBits'({first[p][0], offset[p][3:0]})", "ByteBits'({1'b0, offset[p][3:0]})"),
    ),
    Mutant(
        *("store_live", "the last words wait for a whole burst", "a_nearer_to_a_move", STORE),
        *(" || (ending && waiting != '0);", ";"),
    ),
    Mutant(
        *("store_live", "one plane alone has bursts", "a_nearer_to_a_move", STORE),
        *("plane_q <= plane_q == 2'd2 ? '0 : plane_q + 1'b1;", "plane_q <= '0;"),
    ),
    Mutant(
        *("store_live_32", "one plane alone has bursts", "a_nearer_to_a_move", STORE),
        *("plane_q <= plane_q == 2'd2 ? '0 : plane_q + 1'b1;", "plane_q <= '0;"),
    ),
    Mutant(
        *("store_pack", "the flush leaves a half", "a_none_is_left", PACK),
        *("|| (flush_q && kept_strobe_q != '0)", ""),
    ),
    Mutant(
        *("store_pack", "a plane begins in the lower half", "a_strobes_are_the_bytes", PACK),
        *("next_q        <= offset_i[PlaceBits-1:3]", "next_q        <= '0"),
    ),
    Mutant(
        *("store_pack", "bytes are not rotated", "a_followed_is_there", PACK),
        *("data[3'(j) - fill_q]", "data[3'(j)]"),
    ),
    Mutant(
        *("store_pack_32", "a word's third part is not kept", "a_followed_is_there", PACK),
        *("kept_q[i]              <= part_q;", "if (i != 2) kept_q[i] <= part_q;"),
    ),
    Mutant(
        *("cu_shell", "done before memory has the record", "a_done_is_recorded", SHELL),
        *("CuRecord:  if (record_idle_o) phase_d", "CuRecord:  phase_d"),
    ),
    Mutant(
        *("cu_shell", "a record to an address that is not aligned", "a_a_record_a_run", SHELL),
        *("record_idle_o && !record_refused_q;", "record_idle_o;"),
    ),
    Mutant(
        *("cu_shell", "a job does not wait for the record before", "a_phases_follow", SHELL),
        *("else if (record_idle_o) phase_d = CuWait;", "else phase_d = CuWait;"),
    ),
    Mutant(
        *("cu_shell", "the end of a record is missed", "a_moves_in_time", SHELL),
        *("CuRecord:  if (record_idle_o) phase_d", "CuRecord:  if (record_idle_o && !refused_i) phase_d"),
    ),
    Mutant(
        *("marker_states", "no state leaves on the file's end", "a_nearer_to_rest", MARKER),
        *("wants       = state_q.takes || (at.skip", "wants       = (at.skip"),
    ),
    Mutant(
        *("marker_states", "bits that are no state stay", "a_nearer_to_rest", MARKER),
        *("if (!rst_ni || no_state_q) begin", "if (!rst_ni) begin"),
    ),
    Mutant(
        *("marker_states", "a failure is told for ever", "a_nearer_to_rest", MARKER),
        *("|| bad_q) && !hushed_q;", "|| bad_q);"),
    ),
    Mutant(
        *("reader_states", "the lengths of codes have no end", "a_nearer_to_rest", HUFFMAN),
        *("if (symbols_q == '0 || code_length_q[4]) begin", "if (symbols_q == '0) begin"),
    ),
    Mutant(
        *("reader_states", "the frame's header wants no byte behind its check", "a_answers", FRAME_HEADER),
        *("turn_i && state_q != StCheck", "turn_i && state_q == StSizes"),
    ),
    Mutant(
        *("entropy_states", "no state for codes that are none", "a_nearer_to_rest", ENTROPY),
        *("default: state_d = StIdle;", "default: ;"),
    ),
    Mutant(
        *("entropy_states", "the count of MCUs has no end", "a_nearer_to_rest", ENTROPY),
        *("StCount: state_d = StLoad;", "StCount: ;"),
    ),
    Mutant(
        *("symbol_pairs_states", "a code is longer than the table", "a_nearer_to_rest", PAIRS),
        *(
            "if (window_q == '1) state_d = StIdle;\n               else if (left_q == '0) state_d",
            "if (left_q == '0) state_d",
        ),
    ),
    Mutant(
        *("progressive_states", "codes that are none begin a pass", "a_nearer_to_rest", PROGRESSIVE),
        *("default:    state_d = StIdle;", "default:    state_d = StStart;"),
    ),
    Mutant(
        *("progressive_states", "a pass is settled for ever", "a_nearer_to_rest", PROGRESSIVE),
        *("StPass:     state_d = StStart;", "StPass:     state_d = StSettle;"),
    ),
    Mutant(
        *("wav_states", "no state for codes that are none", "a_nearer_to_rest", WAV),
        *("default: state_d = Idle;", "default: ;"),
    ),
    Mutant(
        *("wav_states", "chunks are not counted", "a_chunks_count", WAV),
        *("chunks_q <= chunks_q + 7'd1", "chunks_q <= chunks_q"),
    ),
    Mutant(
        *("resample_states", "a load has no end", "a_nearer_to_rest", RESAMPLE),
        *("Load:    state_q <= Idle;", "Load:    ;"),
    ),
    Mutant(
        *("resample_states", "waits for a count that never began", "a_nearer_to_rest", COUNT),
        *("done_o <= !start_i && busy_q[Bits:0] == '0;", "done_o <= busy_q[Bits+1];"),
    ),
    Mutant(
        *("mel_states", "no state for codes that are none", "a_nearer_to_rest", MEL),
        *("default:  state_q <= StLoad;", "default:  ;"),
    ),
    Mutant(
        *("sound_store_states", "what does not fit is drained for ever", "a_nearer_to_rest", AUDIO_STORE),
        *("StDrain: if (take_value && last_value_q) state_d = StWrite;", "StDrain: ;"),
    ),
    Mutant(
        *("frame_states", "less space than a frame has", "a_nearer_to_rest", FRAME),
        *("space_q <= level_q < 10'(Ring - 12)", "space_q <= level_q < 10'(Needed - 12)"),
    ),
    Mutant(
        *("frame_states", "no zeros behind the sound", "a_nearer_to_rest", FRAME),
        *("(front_q || (!more_q && !mirrored))", "front_q"),
    ),
    Mutant(
        *("frame_mean_states", "no state for codes that are none", "a_nearer_to_rest", FRAME_MEAN),
        *("default:    state_q <= StWait;", "default:    ;"),
    ),
    Mutant(
        *("mel_normalize_states", "the end leads back", "a_nearer_to_rest", NORMALIZE),
        *("if (empty) state_q <= StIdle;", "if (empty) state_q <= StValues;"),
    ),
    Mutant(
        *("mel_normalize_states", "a phase that is none stays", "a_slots_go_on", NORM_STATISTICS),
        *("phase_q <= step ? '0 : phase_q + 1'b1;", "phase_q <= step ? '0 : &phase_q ? phase_q : phase_q + 1'b1;"),
    ),
    Mutant(
        *("tensor_rows_states", "rows have no end", "a_nearer_to_rest", TENSOR_ROWS),
        *("mel_q <= last_row ? mels_i : mel_q - 1'b1;", "mel_q <= last_row ? mels_i : mel_q;"),
    ),
)


def abc_program() -> Path:
    """Return the path of ABC. Raises MissingExtra."""
    spec = find_spec("pyosys")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (program := Path(folder) / "yosys-abc").exists():
            return program
    raise MissingExtra("Yosys (pyosys)", "rtl")


def run(command: Sequence[str], cpu_s: int) -> tuple[str, bool]:
    """Run a command and return its standard output, and whether it ended within `cpu_s` seconds of the processor."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, errors="replace") as process:
        # A preexec_fn would copy the page tables of this process, which a large one notices.
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "", False
        finally:
            process.kill()  # whatever interrupts the wait; one that has ended is left alone
    if process.returncode > 0:
        errors = [line for line in (out + err).splitlines() if "error" in line.lower()]
        raise BuildError(f"{Path(command[0]).name} failed:\n" + "\n".join(errors[:10]))
    return out, process.returncode == 0


def sources(proof: Proof, hls: Path) -> list[Path]:
    """Return the files of `hls` that the circuit of a proof is made of."""
    return needed_files(proof.top, [*rtl_sources(hls), *sorted((hls / "formal").glob("*.sv"))])


def models(
    proof: Proof, hls: Path, folder: Path, kinds: Sequence[str], parameters: Sequence[str] = ()
) -> tuple[Model, ...]:
    """Write circuits of a proof to `folder`, all in one run of Yosys. Raises BuildError.

    Args:
        hls: The folder of the sources, or a copy with a mutant.
        kinds: `asserts`, all properties; `step`, the same from any state in which they hold; `covers`; or the name of
            one property.
        parameters: `NAME=VALUE` of the top module.
    """
    given = "".join(f" -G {each}" for each in (*proof.parameters, *parameters))
    free = ("async2sync", "formalff -clk2ff -ff2anyinit") if proof.any_state else ()
    bound = ("formalff -anyinit2ff",) if proof.any_state else ()
    steps = [
        f"read_slang --top {proof.top}{given} {' '.join(map(str, sources(proof, hls)))}",
        *("proc", "flatten", *(f"cutpoint w:{name}" for name in proof.cut)),
        # What is undefined must be free before the optimiser sees it, which else takes the values that suit it.
        *("setundef -anyseq -undriven", *free, "opt -full", "chformal -lower", "async2sync", "delete t:$print"),
        *("memory_map", "design -save whole"),
    ]
    for kind in kinds:
        maps = folder / f"{kind}.map.v"
        maps.write_text(STEP if kind == "step" else COVER)
        chosen = {
            "asserts": ("delete t:$cover",),
            "step": ("delete t:$cover", "setattr -unset init w:*", f"techmap -max_iter 1 -map {maps} t:$assert"),
            "covers": ("delete t:$assert", f"techmap -map {maps}"),
        }
        steps += [
            *("design -load whole", *chosen.get(kind, ("delete t:$cover", f"delete t:$assert c:*{kind} %d"))),
            *(*free, "opt -full", "setundef -anyseq -undriven", "opt_clean", "techmap", "opt -fast", *bound),
            *("dffunmap", "simplemap", "aigmap", "opt_clean"),
            f"write_aiger -zinit -ywmap {folder / kind}.json {folder / kind}.aig",
        ]
    _, ended = run([sys.executable, "-c", YOSYS, *steps], 300)
    if not ended:
        raise BuildError(f"{proof.top}: Yosys did not end")

    def short(cells: list[list[str]]) -> tuple[str, ...]:
        return tuple(cell[-1].lstrip("\\").split(".")[-1] for cell in cells)

    told = [json.loads((folder / f"{kind}.json").read_text()) for kind in kinds]
    return tuple(
        Model(folder / f"{kind}.aig", short(names["asserts"]), short(names["assumes"]))
        for kind, names in zip(kinds, told, strict=True)
    )


def abc(circuit: Model, steps: str, cpu_s: int) -> str:
    """Run ABC on a circuit and return what it prints; it may have been stopped after `cpu_s` seconds."""
    fold = "fold; strash" if circuit.assumptions else "strash"
    return run([str(abc_program()), "-q", f"read_aiger {circuit.path}; {fold}; {steps}"], cpu_s)[0]


def failures(circuit: Model, clocks: int, cpu_s: int) -> tuple[dict[str, int], bool]:
    """Return the properties that fail within `clocks` clocks, each with the clock of its shortest trace, and whether
    ABC looked at all these clocks."""
    told = abc(circuit, f"bmc3 -a -x -F {clocks}", cpu_s)
    found = re.findall(r"Output\s+(\d+) was asserted in frame\s+(\d+)", told)
    ended = re.search(r"No output asserted in (\d+) frames|Some outputs are SAT .* after (\d+) frames", told)
    looked = int(ended[1] or ended[2]) if ended else 0
    return {circuit.names[int(output)]: int(frame) for output, frame in found}, (
        looked >= clocks or len(found) == len(circuit.names)
    )


def prove(proof: Proof, hls: Path, folder: Path) -> Result:
    """Prove a proof, with models in `folder`. Raises BuildError if a source cannot be read."""
    began = cpu()
    result = Result(proof.name, proof.slow)
    asserts, step, covers = models(proof, hls, folder, ("asserts", "step", "covers"))
    result.assumptions = sorted(set(asserts.assumptions))
    found, step_ended = failures(step, 2, proof.cpu_s)
    result.not_inductive = sorted(found)
    inductive = step_ended and not found
    result.failed_at, begins = failures(asserts, 2 if inductive else proof.clocks, proof.cpu_s)
    proved = inductive and begins and not result.failed_at
    result.method = "induction"
    if not proved and not result.failed_at:
        proved = "Property proved" in abc(asserts, "orpos; scorr; pdr", proof.cpu_s)
        result.method = "PDR"
    if result.failed_at:
        result.method = "BMC"
    others = PROVED if proved else UNDECIDED
    result.properties = {name: DISPROVED if name in result.failed_at else others for name in sorted(asserts.names)}
    reached, _ = failures(covers, proof.clocks, proof.cpu_s)
    result.covers = {name: reached.get(name) for name in sorted(covers.names)}
    result.cpu_s = round(cpu() - began, 1)
    return result


def copy_rtl(hls: Path, copy: Path) -> None:
    """Copy the SystemVerilog of hls/ with its folders."""
    shutil.copytree(hls, copy, ignore=shutil.ignore_patterns("*.py", "*.cpp", "*.hpp", "*.h", "*.md", "__pycache__"))


def proof_of(mutant: Mutant) -> Proof:
    """Return the proof whose property the mutant must make fail."""
    return next(proof for proof in PROOFS if proof.name == mutant.proof)


def caught(mutant: Mutant, hls: Path, folder: Path) -> int | None:
    """Return the clock in which the named property fails in a copy of `hls` with the mutant, or None if it does not.

    Raises:
        BuildError: The text that the mutant changes does not stand in its file exactly once.
    """
    proof = proof_of(mutant)
    copy = folder / "hls"
    copy_rtl(hls, copy)
    source = copy / mutant.file
    text = source.read_text()
    if text.count(mutant.old) != 1:
        raise BuildError(
            f"mutant {mutant.name}: its text must stand in {mutant.file} once, not {text.count(mutant.old)} times"
        )
    source.write_text(text.replace(mutant.old, mutant.new))
    (circuit,) = models(proof, copy, folder, (mutant.fails,), mutant.parameters)
    if circuit.names != (mutant.fails,):
        raise BuildError(f"mutant {mutant.name}: {proof.top} has no property {mutant.fails}")
    return failures(circuit, proof.clocks, proof.cpu_s)[0].get(mutant.fails)


def cpu() -> float:
    """Return the seconds of the processor that the children took so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def lines(result: Result) -> Iterator[str]:
    """Return the lines of the table that a proof fills."""
    for name, state in result.properties.items():
        at = f" in clock {result.failed_at[name]}" if name in result.failed_at else ""
        yield f"{result.name:16} {name:26} {result.method:18} {state}{at}"
    for name, clock in result.covers.items():
        state = "not reached" if clock is None else f"reached in clock {clock}"
        yield f"{result.name:16} {name:26} {'cover':18} {state}"
    for name in result.assumptions:
        yield f"{result.name:16} {name:26} assumed"
    if result.not_inductive:
        yield f"{result.name:16} not inductive: {', '.join(result.not_inductive)}"
    yield f"{result.name:16} {result.cpu_s:.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("proof", nargs="*", help=f"one of {', '.join(proof.name for proof in PROOFS)}")
    parser.add_argument("--all", action="store_true", help="the slow proofs, too")
    parser.add_argument("--mutants", action="store_true", help="also change the RTL, and see the properties fail")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results")
    given = parser.parse_args()
    if unknown := set(given.proof) - {proof.name for proof in PROOFS}:
        parser.error(f"no proof {', '.join(sorted(unknown))}; --help lists them")
    wanted = [p for p in PROOFS if (p.name in given.proof if given.proof else given.all or not p.slow)]
    results, mutants, good = [], [], True
    for proof in wanted:
        with tempfile.TemporaryDirectory(prefix="headrace-prove-") as folder:
            result = prove(proof, FOLDER.parent, Path(folder))
        print(*lines(result), sep="\n", flush=True)
        results.append(result)
        good &= result.good
    for mutant in MUTANTS if given.mutants else ():
        if mutant.proof not in {proof.name for proof in wanted}:
            continue
        began = cpu()
        with tempfile.TemporaryDirectory(prefix="headrace-prove-") as folder:
            clock = caught(mutant, FOLDER.parent, Path(folder))
        state = "missed" if clock is None else f"fails in clock {clock}"
        print(f"{mutant.proof:16} {mutant.fails:26} mutant: {mutant.name}: {state}", flush=True)
        mutants.append(
            {
                **{"proof": mutant.proof, "name": mutant.name, "fails": mutant.fails},
                **{"clock": clock, "cpu_s": round(cpu() - began, 1)},
            }
        )
        good &= clock is not None
    print(f"{cpu():.1f} s of the processor; {'all proved' if good else 'NOT all proved'}")
    if given.json:
        found = {"proofs": [as_json(each) for each in results], "mutants": mutants}
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if good else 1


def as_json(result: Result) -> dict[str, Any]:
    """Return a result as JSON has it."""
    names = ("name", "slow", "method", "properties", "failed_at", "covers", "assumptions", "not_inductive", "cpu_s")
    return {name: getattr(result, name) for name in names}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HeadraceError as error:
        sys.exit(f"prove.py: {error}")
