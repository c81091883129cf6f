# Before place_design: a soft block of the whole die for the compute units of each die.
source [file join [file dirname [info script]] .. floorplan.tcl]
foreach {unit slr} $floorplan {
  set cells [get_cells -hierarchical -filter "NAME =~ */$unit/inst"]
  if {[llength $cells] == 0} { puts "CRITICAL WARNING: $unit is not in the design"; continue }
  if {![info exists made($slr)]} {
    set made($slr) [create_pblock compute_units_slr$slr]
    resize_pblock $made($slr) -add SLR$slr
    set_property IS_SOFT true $made($slr)
  }
  add_cells_to_pblock $made($slr) $cells
}
