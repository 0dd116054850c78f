"""What bench.epilogues times: products with epilogues that users write, beside PyTorch's."""
