"""How much of the load is in time under each policy: those that know deadlines, as bars for the rest."""
