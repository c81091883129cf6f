"""Which sources a module needs, and in which order tools get them."""

import shutil

from headrace.bitstreams.sources import hls_folder
from headrace.bitstreams.verilate import needed_files, rtl_sources


def test_a_copy_of_hls_with_a_unit_of_ones_own_is_ordered_as_the_installed_one(tmp_path):
    copy = tmp_path / "hls"
    shutil.copytree(hls_folder(), copy)
    (copy / "mine").mkdir()
    (copy / "mine/mine.sv").write_text(
        '`include "../rtl/axi/axi_ports.svh"\nmodule mine;\n  stream_fifo u ();\nendmodule\n'
    )
    own = rtl_sources(copy)
    installed = [path.relative_to(hls_folder()) for path in rtl_sources()]
    assert [path.relative_to(copy) for path in own if path.stem != "mine"] == installed
    found = [str(path.relative_to(copy)) for path in needed_files("mine", own)]
    assert found[0] == "rtl/axi/axi_ports.svh" and found[-2:] == ["mine/mine.sv", "rtl/stream_fifo.sv"]
    assert found.index("rtl/headrace_pkg.sv") < found.index("decode/progressive/progressive_pkg.sv")
