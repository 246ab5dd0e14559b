"""Watching a run while it runs: in a terminal, or as a page in a browser."""
