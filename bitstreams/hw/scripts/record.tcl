# tclsh scripts/record.tcl SCRIPT ARGUMENTS...: runs a script of this folder without Vivado. Each command that Tcl does
# not have is printed, a Tcl list a line, and returns its name with its first argument, so that one sees whose property
# is set.
proc unknown {args} {
  puts [list {*}$args]
  return "[lindex $args 0]([lindex $args 1])"
}
set script [lindex $argv 0]
set argv [lrange $argv 1 end]
source $script
