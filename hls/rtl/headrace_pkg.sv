// What the image units have in common: status codes, the stream contract, and what travels inside
// decode.
//
// The stream contract is that of include/headrace/image_stream.hpp with two pixels a beat: for each
// request a unit receives exactly one frame_t, then, if its status is StatusOk, beats in raster
// order until one has `last` set. A row starts with a new beat; lane 0 is the left pixel, and
// `keep` is 2'b01 in the last beat of a row of odd width. An upstream error in mid-image ends the
// beats early: a beat with keep = 0, last = 1 and the status, which every unit passes on. Before
// its first beat a unit that finds an error sends a frame with that status and no beats, and drains
// its input. So every unit ends on `last` and on nothing else, whatever the input was. From render
// to resize beats have config_pkg::Pixels pixels: source_beat_t, else by the same contract. `keep`
// is a mask of the left ones.
package headrace_pkg;

  localparam int unsigned MaxWidth = config_pkg::MaxWidth;
  localparam int unsigned ColumnBits = $clog2(MaxWidth);
  localparam int unsigned WordBits   = ColumnBits - 3;  // eight pixels a word
  localparam int unsigned MaxJpegHeight = 65500;  // JPEG_MAX_DIMENSION of libjpeg
  localparam int unsigned MaxScans = 128;         // of a file

  // What every AXI master says of its bursts (AMBA AXI, A4.4 and A4.7): normal memory, bufferable
  // and modifiable, so that the interconnect may merge and widen them, and not to be cached; data,
  // secure, unprivileged. Vitis HLS says the same.
  localparam logic [3:0] AxiCache = 4'b0011;
  localparam logic [2:0] AxiProt  = 3'b000;

  // include/headrace/status.hpp says what each means; a test compares the two lists.
  typedef enum logic [7:0] {
    StatusOk              = 8'd0,
    StatusNotJpeg         = 8'd1,
    StatusTruncated       = 8'd2,
    StatusProgressive     = 8'd3,
    StatusArithmetic      = 8'd4,
    StatusLossless        = 8'd5,
    StatusPrecision       = 8'd6,
    StatusComponents      = 8'd7,
    StatusSampling        = 8'd8,
    StatusTooLarge        = 8'd9,
    StatusCorruptHeader   = 8'd10,
    StatusMissingTable    = 8'd11,
    StatusCorruptHuffman  = 8'd12,
    StatusRestartMismatch = 8'd13,
    StatusMultipleScans   = 8'd14,
    StatusResizeLimit     = 8'd15,
    StatusCropOutside     = 8'd16,
    StatusBufferTooSmall  = 8'd17,
    StatusBadArgument     = 8'd18,
    StatusBusError        = 8'd19,
    StatusNotWav          = 8'd20,
    StatusSoundFormat     = 8'd21,
    StatusChannels        = 8'd22,
    StatusRate            = 8'd23,
    StatusTooLong         = 8'd24
  } status_e;

  typedef struct packed {
    logic [15:0] width;
    logic [15:0] height;
    status_e     status;  // not StatusOk: no beats follow
  } frame_t;  // 40 bits

  typedef struct packed {
    logic [7:0] r;
    logic [7:0] g;
    logic [7:0] b;
  } pixel_t;

  typedef struct packed {
    pixel_t [1:0] pixel;  // [0] is the left one
    logic   [1:0] keep;
    logic         last;   // ends the frame
    status_e      status; // StatusOk, or with `last` the error that ended the frame early
  } beat_t;  // 59 bits

  // The same of a source image.
  localparam int unsigned SourcePixels = config_pkg::Pixels;
  localparam int unsigned SourceLaneBits = $clog2(SourcePixels);

  typedef pixel_t [SourcePixels-1:0] source_pixels_t;

  typedef struct packed {
    source_pixels_t          pixel;
    logic [SourcePixels-1:0] keep;
    logic                    last;
    status_e                 status;
  } source_beat_t;  // 59 bits, or 109

  // The part of a source image that is wanted, in rows and in words of eight pixels of these; last
  // ones beyond the image: all to its end.
  typedef struct packed {
    logic [15:0] first_row;
    logic [15:0] last_row;
    logic [WordBits-1:0] first_word;
    logic [WordBits:0]   last_word;  // a bit more: it may be the one behind the widest image's
  } window_t;
  localparam window_t WholeFrame = '{first_row: '0, last_row: '1, first_word: '0, last_word: '1};

  // Where a crop lies in an image: its first and last column and row.
  typedef struct packed {
    logic        fits;  // else it is empty or not all in the image, and nothing else here counts
    logic [15:0] width;
    logic [15:0] height;
    logic [15:0] left;
    logic [15:0] right;
    logic [15:0] top;
    logic [15:0] bottom;
  } crop_t;  // 97 bits

  // Two normalized pixels: the bits of the output type in the low 32, 16 or 8 of each channel.
  typedef struct packed {
    logic [1:0][2:0][31:0] value;  // [lane][channel: 0 red, 1 green, 2 blue]
    logic [1:0]            keep;
    logic                  last;
    status_e               status;
  } sample_beat_t;  // 203 bits

  // ---- Inside decode ----

  // The frame and scan headers, resolved, as far as the path behind the entropy decoder needs them.
  typedef struct packed {
    logic [15:0] width;
    logic [15:0] height;
    logic        color;    // three components; else gray
    logic [1:0]  h_shift;  // log2 of the greatest sampling factors, which luma has; 0 for gray
    logic [1:0]  v_shift;
    logic [1:0][1:0] chroma_h;  // of those of Cb [0] and Cr [1]
    logic [1:0][1:0] chroma_v;
    logic        rgb;      // the components are R, G, B
  } scan_t;  // 46 bits

  // What the entropy decoder needs besides; `status` is not StatusOk if the headers were bad: no
  // data follow.
  typedef struct packed {
    status_e         status;
    scan_t           scan;
    logic [15:0]     restart_interval;  // MCUs, 0 for none
    logic [2:0][1:0] dc;                // table numbers by component
    logic [2:0][1:0] ac;
    logic [2:0][1:0] quant;
  } entropy_scan_t;

  // The same for files of several scans: one for each scan, then one that ends the file. Either
  // `file_end`, or a status other than StatusOk: behind it no data follow.
  typedef struct packed {
    status_e         status;
    logic            file_end;
    scan_t           scan;
    logic [15:0]     restart_interval;  // MCUs of this scan, 0 for none
    logic            progressive;       // the frame is
    logic [2:0]      members;           // a bit for each component: it is in the scan
    logic [5:0]      first;             // band of coefficients, in zigzag order
    logic [5:0]      last;
    // Successive approximation: the lowest bit before the scan, 0 for none,
    logic [3:0]      high;
    logic [3:0]      low;               // and behind it
    logic [2:0][1:0] dc;                // table numbers by component
    logic [2:0][1:0] ac;
  } band_scan_t;  // 107 bits

  // The entropy-coded segments with stuffing removed.
  typedef enum logic [1:0] {
    TokenData,     // one byte in [15:8], or two, the first in [15:8]
    TokenRestart,  // [2:0]: number of the RSTn marker
    // Another marker, or no more bytes. [7:0]: the status if the image is not complete by then.
    TokenScanEnd,
    TokenFileEnd   // [7:0]: what the file looked like from there on to EOI
  } token_kind_e;
  typedef struct packed {
    token_kind_e kind;
    logic        two;
    logic [15:0] data;
  } token_t;  // 19 bits

  // Writes into the Huffman tables while the headers are read. Codes of a length are consecutive: a
  // window of 16 bits starts with a code of at most n bits if it is below the limit of n; the
  // symbol stands at the code plus the offset.
  typedef struct packed {
    logic        ac;       // else DC
    logic [1:0]  number;
    logic        symbol;   // a symbol, in order of the codes; else a limit
    logic [4:0]  length;   // of the code, 1 to 16
    logic [15:0] limit;
    logic [7:0]  offset;   // modulo 256
    logic        first;    // symbol: the first of its table
    logic [7:0]  index;    // symbol: its place
    logic [7:0]  value;    // symbol
  } huffman_write_t;

  typedef struct packed {
    logic [4:0] total;   // bits of the code and the extra bits behind it
    logic       ends;    // EOB: no more coefficients of the block are sent
    logic [7:0] symbol;
  } huffman_entry_t;

  // One coefficient of a block, or two; those not sent are zero. Every block has a beat with
  // `last`. The end beat has only `status` besides `done`.
  typedef struct packed {
    logic             done;    // of the image: no coefficient
    status_e          status;
    logic [1:0]       quant;   // table number
    logic             last;    // of its block
    logic             two;     // [1] counts as well
    logic [1:0][15:0] value;   // signed, before dequantisation
    logic [1:0][5:0]  index;   // in zigzag order
  } coefficient_t;  // 57 bits

  // A row of a block, left to right. The end beat has only `status` besides `done`.
  typedef struct packed {
    logic [7:0][7:0] value;  // [0] is the left one
    logic            done;
    status_e         status;
  } samples_t;  // 73 bits

  // What decode did in a clock, for the performance counters.
  typedef struct packed {
    logic header;          // the headers were being read
    logic symbol;          // a Huffman symbol was taken
    logic second;          // and another one
    // The entropy decoder had too few bits of the file, or waited for a word of the workspace.
    logic wait_data;
    logic wait_transform;  // the entropy decoder waited for room in front of the transform
    logic wait_rows;       // samples waited for a free MCU row in the row buffers
    logic wait_output;     // pixels waited for the unit behind
  } decode_events_t;

  // Log2 of how many samples of luma stand beside one of a component of chroma, across and down.
  function automatic logic [1:0] chroma_h_shift(scan_t scan, logic component);
    return scan.h_shift - scan.chroma_h[component];
  endfunction
  function automatic logic [1:0] chroma_v_shift(scan_t scan, logic component);
    return scan.v_shift - scan.chroma_v[component];
  endfunction

  // The triangle filter along its rows: libjpeg replicates where there is one sample of four either
  // way, as in 4:1:1 and 4:1:0, and where one of two across leaves at most two columns.
  function automatic logic fancy_columns(scan_t scan, logic component);
    return chroma_h_shift(scan, component) == 2'd1 && chroma_v_shift(scan, component) <= 2'd1 &&
           scan.width > 16'd4;
  endfunction

  // And between them.
  function automatic logic fancy_rows(scan_t scan, logic component);
    return chroma_v_shift(scan, component) == 2'd1 &&
           (chroma_h_shift(scan, component) == '0 || fancy_columns(scan, component));
  endfunction

  // So that the last row of an MCU row needs chroma of the row below.
  function automatic logic needs_row_below(scan_t scan);
    return fancy_rows(scan, 1'b0) || fancy_rows(scan, 1'b1);
  endfunction

endpackage
