"""Proposers: from a root state and its stale distribution to hypothetical future states."""
