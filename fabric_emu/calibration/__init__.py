"""Which link rate this machine carries a scenario at, and how little delay it adds."""
