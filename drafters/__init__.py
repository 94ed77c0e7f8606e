"""What is learned: features, the order model, its training, and the bundled weights."""
