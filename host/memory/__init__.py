"""Memory that the runtime and its worker processes share: tensor slots and state rows."""
