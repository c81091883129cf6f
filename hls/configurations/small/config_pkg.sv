// The configuration `small`: baseline files, for boards with a few hundred KiB of memory.
// rtl/config_pkg.sv explains the constants.
package config_pkg;

  localparam int unsigned MaxWidth = 2048;
  localparam int unsigned Pixels   = 2;
  localparam int unsigned Symbols  = 1;
  localparam int unsigned WriteBytes = 16;
  localparam bit Progressive = 1'b0;
  localparam bit Samplings   = 1'b0;
  localparam bit Programs    = 1'b0;
  localparam bit Queue       = 1'b0;

endpackage
