"""The OpenAI-compatible endpoint on Ray Serve."""
