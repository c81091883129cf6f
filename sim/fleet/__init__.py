"""Many equal servers behind a router, in one run."""
