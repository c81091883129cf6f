"""The clock, the timers and the process settings that the live runtime takes from the machine."""
