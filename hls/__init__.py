"""Hardware sources of the units: HLS C++ and SystemVerilog. There is no Python here but this line."""
