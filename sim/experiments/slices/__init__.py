"""Study a GPU in slices with its preprocessing beyond the PREBA paper: on Hopper, under every policy, in unequal
slices.
"""
