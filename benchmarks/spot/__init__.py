"""``maskahead report spot``: the SPOT paper's tables and figures on any target."""
