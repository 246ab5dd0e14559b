"""Configuration of real switches, read as policies of a scenario."""
