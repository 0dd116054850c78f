"""python -m cutlass_fused.explain MODULE:FACTORY: what `fuse` does to a model, with its times."""
