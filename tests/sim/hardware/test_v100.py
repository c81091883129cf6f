import pytest

from headrace.sim.hardware.v100 import decoder_step_s, lstm_step_s


def test_cells_have_the_latencies_of_the_paper():
    assert [round(1e6 * lstm_step_s(batch)) for batch in (1, 64, 512, 1024)] == [185, 185, 784, 1568]
    assert decoder_step_s(256) == pytest.approx(3 * lstm_step_s(256))
    assert decoder_step_s(512) == pytest.approx(2 * decoder_step_s(256))
    rates = [batch / decoder_step_s(batch) for batch in (64, 128, 256, 512, 1024)]
    assert max(rates) == pytest.approx(rates[2]) and rates[1] < rates[2]
