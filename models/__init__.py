"""What a target is: its spec, its network, its prefix cache, loading and tensor parallelism."""
