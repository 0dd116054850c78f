"""python -m cutlass_fused.build_epilogues: epilogues linked ahead of time."""
