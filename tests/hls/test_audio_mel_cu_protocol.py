"""audio_mel_cu's registers and buses under cocotb: one simulator run for the tests of
cocotb_audio_mel_cu.py."""

import protocol
import pytest

# A run takes this unit the longest. Its registers and masters are those of image_cu and audio_norm_cu (axi_control,
# axi_read, axi_write), whose tests of the same names are quick.
AS_OTHERS = {
    "a_start_during_a_run_is_kept_until_after_continue",
    "done_stands_until_continue",
    "the_interrupt_rises_once_a_run_and_falls_when_acknowledged",
    "the_counters_tell_of_the_last_run",
    "buffers_may_lie_across_4_kib_and_4_gib",
    # test_audio_mel_cu.py has a bad pointer of each kind, too, without stalls; test_memory_errors.py has random errors.
    "a_bad_pointer_ends_in_bus_error_and_the_next_run_is_sound",
    "random_errors_end_in_bus_error_and_the_next_run_is_sound",
}
NAMES = protocol.tests("audio_mel_cu")
assert set(NAMES) > AS_OTHERS


@pytest.mark.parametrize("names", protocol.shared_runs("audio_mel_cu", 1, without=AS_OTHERS), ids="+".join)
def test_protocol(names, tmp_path):
    protocol.run("audio_mel_cu", names, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_protocol_with_every_case(name, tmp_path):
    protocol.run("audio_mel_cu", [name], tmp_path, every=True)
