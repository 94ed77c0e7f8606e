"""What a GPU makes of a forward, of drafting and of whole methods: ``python -m benchmarks.gpu``."""
