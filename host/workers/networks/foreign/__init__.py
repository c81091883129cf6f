"""Files of networks that others made: what they may hold, and the limits within which they are read."""
