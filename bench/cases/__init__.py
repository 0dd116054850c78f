"""What is timed: models, layers and shapes, and the variants that compute each."""
