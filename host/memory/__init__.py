"""Memory that the runtime shares with its worker processes: tensor slots and state rows."""
