"""What `headrace plan` prints, writes and draws, a module for each kind of plan."""
