"""Captures of links and hosts as pcapng files."""
