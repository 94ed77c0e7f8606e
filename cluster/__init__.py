"""The cluster that everything runs on: session, placement, tracking."""
