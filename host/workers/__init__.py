"""Worker processes and what runs in them."""
