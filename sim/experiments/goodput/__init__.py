"""Compare how much of the load is in time under each policy, with those that know deadlines as a bar for the others."""
