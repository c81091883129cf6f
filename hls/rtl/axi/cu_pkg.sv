// What a compute unit and its shell tell each other, see cu_shell.
package cu_pkg;

  // What the compute unit does.
  typedef enum logic [2:0] {
    CuIdle,
    CuCheck,    // are the arguments sound?
    CuStart,    // every unit begins
    CuRun,      // until all are done
    CuOutcome,  // the outputs are known
    CuRecord,   // the record is on its way
    CuDone,     // until ap_continue
    CuWait      // for a job from a ring; the record of the one before may still be on its way
  } cu_phase_e;

  // Clocks of the last run, or of the one that runs, which every compute unit counts.
  typedef struct packed {
    logic [31:0] cycles;        // start to done
    logic [31:0] first_output;  // start to the first word of the output that memory took
    logic [31:0] last_output;   // and to the last
    logic [31:0] wait_write;    // a word of the output waited for memory
  } cu_counts_t;

endpackage
