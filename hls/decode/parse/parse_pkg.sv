// What the modules of the parser share.
package parse_pkg;
  // Markers (second bytes).
  localparam logic [7:0] Tem   = 8'h01;
  localparam logic [7:0] Sof0  = 8'hC0;
  localparam logic [7:0] Sof1  = 8'hC1;
  localparam logic [7:0] Sof2  = 8'hC2;
  localparam logic [7:0] Sof3  = 8'hC3;
  localparam logic [7:0] Dht   = 8'hC4;
  localparam logic [7:0] Jpg   = 8'hC8;
  localparam logic [7:0] Sof9  = 8'hC9;
  localparam logic [7:0] Dac   = 8'hCC;
  localparam logic [7:0] Sof15 = 8'hCF;
  localparam logic [7:0] Rst0  = 8'hD0;
  localparam logic [7:0] Rst7  = 8'hD7;
  localparam logic [7:0] Soi   = 8'hD8;
  localparam logic [7:0] Eoi   = 8'hD9;
  localparam logic [7:0] Sos   = 8'hDA;
  localparam logic [7:0] Dqt   = 8'hDB;
  localparam logic [7:0] Dnl   = 8'hDC;
  localparam logic [7:0] Dri   = 8'hDD;
  localparam logic [7:0] Dhp   = 8'hDE;
  localparam logic [7:0] App0  = 8'hE0;
  localparam logic [7:0] App14 = 8'hEE;
  localparam logic [7:0] App15 = 8'hEF;
  localparam logic [7:0] Com   = 8'hFE;

  // The marker machine tells with one bit which module reads the file's bytes. No bit is set while
  // the machine reads them itself.
  typedef struct packed {
    logic frame;        // SOF
    logic quant;        // DQT
    logic huffman;      // DHT
    logic standard;     // no bytes: the Huffman tables of the standard are written
    logic application;  // APP0 and APP14
    logic scan;         // SOS
    logic data;         // entropy-coded data
  } turn_t;

  // What the reader of a segment asks of the marker machine. A reader sends zeros while it is not
  // its turn, so the machine joins the requests with an OR.
  typedef struct packed {
    logic       wants;    // needs a byte: the file is too short if there is none
    logic       take;     // takes the byte, if there is one
    logic       one;      // subtract one from the segment's bytes that are left
    logic [8:0] less;     // subtract this, a clock later
    logic       over;     // the segment is read
    logic       fail;     // the headers end with a failure
    logic [7:0] failure;  // the status_e of SOF and SOS; the others' is StatusCorruptHeader
  } request_t;

  // An SOS segment, and what is wrong with the tables that it names.
  typedef struct packed {
    logic [2:0]      members;     // a bit for each component
    logic [5:0]      first;       // band of coefficients, in zigzag order
    logic [5:0]      last;
    logic            beyond;      // the band is wider than a block
    logic [3:0]      high;        // successive approximation
    logic [3:0]      low;
    logic [2:0][1:0] dc;          // table numbers by component
    logic [2:0][1:0] ac;
    logic [3:0]      standard;    // tables of the standard that the scan uses: DC 0, 1, AC 0, 1
    logic [1:0]      missing;     // a table is not defined, nor is it one of the standard's: DC, AC
    logic [1:0]      wide_table;  // the number of a table is above 3: DC, AC
    logic            no_quant;    // a quantisation table is not defined
    logic            wide_quant;  // the number of a quantisation table is above 3
  } scan_header_t;
endpackage
