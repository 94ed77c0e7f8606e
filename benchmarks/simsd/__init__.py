"""``maskahead report simsd``: what SimSD's mask is worth, and what it costs, on any pair."""
