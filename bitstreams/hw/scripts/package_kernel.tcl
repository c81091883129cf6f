# Packages one RTL kernel: vivado -mode batch -source scripts/package_kernel.tcl -tclargs KERNEL PART FOLDER
#
# FOLDER is where KERNEL.xo and what leads to it are written. kernels/KERNEL.tcl has what is the kernel's own: `kernel`
# (vendor, library, name, version), `protocol`, `sources` and `headers` in the order of compilation, `masters`, `slave`,
# and `registers`, for each its name, offset in bytes, size in bits, and the master that a pointer goes to or {}.
lassign $argv name part folder
set root [file normalize [file join [file dirname [info script]] ..]]
source [file join $root kernels $name.tcl]

# Copies the sources into the IP's folder with their layout, so that includes from the same folder are found.
set ip [file join $folder ip_$name]
file delete -force $ip
foreach file [concat $sources $headers {constraints/ap_clk.xdc}] {
  file mkdir [file dirname [file join $ip $file]]
  file copy [file join $root $file] [file join $ip $file]
}

create_project -force package_$name [file join $folder package_$name] -part $part
foreach file $sources { add_files -norecurse [file join $ip $file] }
foreach file $headers {
  add_files -norecurse [file join $ip $file]
  set_property file_type {Verilog Header} [get_files [file join $ip $file]]
}
set constraints [file join $ip constraints ap_clk.xdc]
add_files -fileset constrs_1 -norecurse $constraints
set_property used_in {synthesis implementation out_of_context} [get_files $constraints]
set_property top $name [current_fileset]
update_compile_order -fileset sources_1

lassign $kernel vendor library core_name version
ipx::package_project -root_dir $ip -vendor $vendor -library $library -taxonomy /KernelIP -set_current true
set core [ipx::current_core]
set_property name $core_name $core
set_property version $version $core
set_property sdx_kernel true $core
set_property sdx_kernel_type rtl $core
set_property supported_families {} $core
set_property auto_family_support_level level_2 $core
set_property vitis_drc [list ctrl_protocol $protocol] $core
set_property ipi_drc {ignore_freq_hz true} $core

foreach port [concat $masters $slave] {
  ipx::associate_bus_interfaces -busif $port -clock ap_clk $core
}
ipx::associate_bus_interfaces -clock ap_clk -reset ap_rst_n $core

# The link chooses the clock: any frequency is within the tolerance.
set clock [ipx::get_bus_interfaces ap_clk -of_objects $core]
set tolerance [ipx::add_bus_parameter FREQ_TOLERANCE_HZ $clock]
set_property value -1 $tolerance

ipx::add_memory_map $slave $core
set map [ipx::get_memory_maps $slave -of_objects $core]
set_property slave_memory_map_ref $slave [ipx::get_bus_interfaces $slave -of_objects $core]
set block [ipx::add_address_block reg0 $map]
set_property range 4096 $block
foreach entry $registers {
  lassign $entry register offset bits master
  set made [ipx::add_register $register $block]
  set_property address_offset $offset $made
  set_property size $bits $made
  if {$master ne ""} {
    set associated [ipx::add_register_parameter ASSOCIATED_BUSIF $made]
    set_property value $master $associated
  }
}

set_property core_revision 1 $core
ipx::create_xgui_files $core
ipx::update_checksums $core
ipx::check_integrity -kernel -xrt $core
ipx::save_core $core
package_xo -force -xo_path [file join $folder $name.xo] -kernel_name $name -ip_directory $ip \
  -kernel_xml [file join $root kernels $name.xml] -ctrl_protocol $protocol
close_project
