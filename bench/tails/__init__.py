"""Small models with a tail of every kind behind a layer: `python -m bench.tails`."""
