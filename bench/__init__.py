"""Times cutlass_fused against its peers: `python -m bench.models`, `python -m bench.host`."""
