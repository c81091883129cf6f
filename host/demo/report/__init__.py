"""Report the demo's results as tables, JSON, a picture and a trace."""
