"""``maskahead load``: what an endpoint gives its clients, under load."""
