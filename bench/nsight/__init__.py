"""The table of what Nsight Compute found in a profile."""
