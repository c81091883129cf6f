"""Run networks in worker processes, and start, describe and measure them."""
