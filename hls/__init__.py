"""Hardware sources of the units: HLS C++ and SystemVerilog. Other packages read them as files."""
