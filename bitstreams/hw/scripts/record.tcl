# tclsh scripts/record.tcl SCRIPT ARGUMENTS...: runs a script of this folder without Vivado. Each command that Tcl does
# not have is printed, one Tcl list in each line. It returns its name with its first argument, which shows the object of
# a property.
proc unknown {args} {
  puts [list {*}$args]
  return "[lindex $args 0]([lindex $args 1])"
}
set script [lindex $argv 0]
set argv [lrange $argv 1 end]
source $script
