# Before opt_design: assigns each compute unit to its die, so that dies share no logic.
source [file join [file dirname [info script]] .. floorplan.tcl]
foreach {unit slr} $floorplan {
  set cells [get_cells -hierarchical -filter "NAME =~ */$unit/inst"]
  if {[llength $cells] == 0} { puts "CRITICAL WARNING: $unit is not in the design"; continue }
  set_property USER_SLR_ASSIGNMENT SLR$slr $cells
}
