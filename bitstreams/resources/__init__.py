"""What the RTL takes of a card: Yosys, its netlist, the report."""
