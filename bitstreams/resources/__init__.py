"""Estimate with Yosys how much of a card the RTL units take."""
