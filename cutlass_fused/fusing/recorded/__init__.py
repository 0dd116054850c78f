"""The graph of a forward, and what is found in it: products, chains, the text of functions."""
