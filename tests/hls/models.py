"""What the tests here compile, by name: the tests look it up here, and scripts/build_models builds all of it first.

A name that is not in these tables cannot be built, so that nothing is compiled within a test's time-out for the first
time after scripts/build_models.
"""

from pathlib import Path

from headrace.bitstreams.build import units_cpp
from headrace.bitstreams.sources import hls_folder

HERE = Path(__file__).parent
HLS = hls_folder()
IMAGE_UNITS = units_cpp("image_cu")
DECODE = sorted((HLS / "decode").rglob("*.cpp"))
NORM_CU = [HLS / "mel_normalize/mel_normalize.cpp", HLS / "audio_norm_cu/audio_norm_cu.cpp"]

# Shared libraries of HLS C++, by csim.load.
LIBRARIES: dict[str, list[Path]] = {
    "audio_mel_cu": units_cpp("audio_mel_cu"),
    "audio_norm_cu": NORM_CU,
    "decode": [*DECODE, HERE / "csim_decode.cpp"],
    "headers": [HERE / "csim_headers.cpp"],
    "mel": [HLS / "mel/mel.cpp", HERE / "csim_mel.cpp"],
    "mel_normalize": [HLS / "mel_normalize/mel_normalize.cpp", HERE / "csim_mel_normalize.cpp"],
    "progressive": [*DECODE, HERE / "csim_progressive.cpp"],
    "resample": [HLS / "resample/resample.cpp", HERE / "csim_audio_resample.cpp"],
    "small": [*IMAGE_UNITS, HERE / "csim_units.cpp", HERE / "csim_decode.cpp"],
    "units": [*IMAGE_UNITS, HERE / "csim_units.cpp"],
    "wav": [HLS / "wav/wav.cpp", HERE / "csim_audio_wav.cpp"],
}

# Programs of HLS C++ under the address and UB sanitizers, by csim.program.
PROGRAMS: dict[str, list[Path]] = {
    "audio": [HLS / "wav/wav.cpp", HLS / "resample/resample.cpp", HERE / "csim_audio_sanitized.cpp"],
    "audio_mel_cu": [*units_cpp("audio_mel_cu"), HERE / "csim_audio_mel_cu.cpp"],
    "audio_norm_cu": [*NORM_CU, HERE / "csim_audio_norm_cu.cpp"],
    "decode": [*DECODE, HERE / "csim_decode.cpp"],
    "image_cu": [*IMAGE_UNITS, HERE / "csim_image_cu.cpp"],
    "mel_random": [HLS / "mel/mel.cpp", HERE / "csim_mel_random.cpp"],
    "progressive": [*DECODE, HERE / "csim_progressive.cpp"],
}

# Verilated modules and the C++ that drives each, by rtlsim.load.
RTL: dict[str, Path] = {
    top: HERE / bench
    for top, bench in {
        "axi_read": "rtl_axi.cpp",
        "axi_read_share": "rtl_axi_share.cpp",
        "axi_read_upsize": "rtl_axi_read_upsize.cpp",
        "axi_write": "rtl_axi_write.cpp",
        "axi_write_share": "rtl_axi_write_share.cpp",
        "axi_write_upsize": "rtl_axi_write_upsize.cpp",
        "crop": "rtl_units.cpp",
        "crop_window": "rtl_units.cpp",
        "decode": "rtl_decode.cpp",
        "image_stream": "rtl_image_stream.cpp",
        "mel": "rtl_mel.cpp",
        "mel_normalize": "rtl_mel_normalize.cpp",
        "normalize": "rtl_units.cpp",
        "patches": "rtl_units.cpp",
        "progressive_decoder": "rtl_progressive.cpp",
        "render": "rtl_render.cpp",
        "resample": "rtl_resample.cpp",
        "resize": "rtl_units.cpp",
        "scaler": "rtl_units.cpp",
        "sound_store": "rtl_sound_store.cpp",
        "store": "rtl_store.cpp",
        "transform": "rtl_transform.cpp",
        "wav": "rtl_wav.cpp",
    }.items()
}

# Parameters with which tests also build a module, besides its usual ones.
VARIANTS: dict[str, list[dict[str, int]]] = {"store": [{"Bytes": 32}]}

# The configuration of the libraries and modules that are not built as `full`.
CONFIGURATION = {"image_stream": "small", "small": "small"}
# Parameters of the modules that cocotb drives, other than their usual ones.
PARAMETERS = {"image_stream": {"InputBits": 64}}

# Compute units: each has one model, with hw_emu's driver and as a program for cocotb, see cu_rtlsim.folder.
KERNELS = ("image_cu", "audio_mel_cu", "audio_norm_cu")
COCOTB_TOPS = ("image_stream", "marker_machine")  # without a driver of hw_emu: only cocotb runs them
