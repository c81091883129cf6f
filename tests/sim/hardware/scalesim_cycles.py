"""Run SCALE-Sim 3.0.0 on one matrix product. The recorded values of test_npu.py were made in this way."""

from pathlib import Path

CONFIG = """[general]
run_name = t
[architecture_presets]
ArrayHeight: {rows}
ArrayWidth: {columns}
IfmapSramSzkB: 1024
FilterSramSzkB: 1024
OfmapSramSzkB: 1024
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Bandwidth: 1000
Dataflow: {dataflow}
MemoryBanks: 1
ReadRequestBuffer: 32
WriteRequestBuffer: 32
[layout]
IfmapCustomLayout: False
IfmapSRAMBankBandwidth: 10
IfmapSRAMBankNum: 10
IfmapSRAMBankPort: 2
FilterCustomLayout: False
FilterSRAMBankBandwidth: 10
FilterSRAMBankNum: 10
FilterSRAMBankPort: 2
[sparsity]
SparsitySupport: false
SparseRep: ellpack_block
OptimizedMapping: false
BlockSize: 8
RandomNumberGeneratorSeed: 40
[run_presets]
InterfaceBandwidth: CALC
UseRamulatorTrace: False
"""


def cycles(m: int, k: int, n: int, rows: int, columns: int, dataflow: str, folder: Path) -> int:
    """Return the "Total Cycles" of its compute report."""
    from scalesim.scale_sim import scalesim

    files = {"c.cfg": CONFIG.format(rows=rows, columns=columns, dataflow=dataflow)}
    files["t.csv"] = f"Layer,M,N,K,Sparsity\nL0,{m},{n},{k},1:1,\n"
    files["l.csv"] = "Layer name, IFMAP Height Intraline Factor,\nL0,1,\n"
    for name, text in files.items():
        (folder / name).write_text(text)
    config, topology, layout = (str(folder / name) for name in files)
    simulator = scalesim(
        save_disk_space=True, verbose=False, config=config, topology=topology, layout=layout, input_type_gemm=True
    )
    simulator.run_scale(top_path=str(folder))
    head, first, *_ = (folder / "t" / "COMPUTE_REPORT.csv").read_text().split("\n")
    report = dict(zip((name.strip() for name in head.split(",")), first.split(","), strict=True))
    return int(report["Total Cycles"])
