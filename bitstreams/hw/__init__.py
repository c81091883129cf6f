"""What a machine with the vendor's tools needs to build for a card, and what it made."""
