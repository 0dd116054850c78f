"""Chains of small layers, where launches are the cost: `python -m bench.chains`."""
