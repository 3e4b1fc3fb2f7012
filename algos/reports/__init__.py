"""What a run leaves to look at: curves, tables, a page."""
