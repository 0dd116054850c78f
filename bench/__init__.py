"""Times cutlass_fused against its peers.

`python -m bench.models`, `python -m bench.sweep`, `python -m bench.memory_bound`,
`python -m bench.host`, `python -m bench.training`.
"""
