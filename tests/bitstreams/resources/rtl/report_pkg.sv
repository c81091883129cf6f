package report_pkg;
  typedef struct packed {
    logic [15:0] first;
    logic [15:0] second;
  } pair_t;
endpackage
