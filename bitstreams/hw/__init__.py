"""Write the folder from which the vendor's tools build for a card, and read their reports."""
