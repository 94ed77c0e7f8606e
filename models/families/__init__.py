"""One file per checkpoint family: how its configuration and tensor names map to ours."""
