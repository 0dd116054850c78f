"""Calls of a fused model as CUDA graphs: `fuse(model, graphs=True)`.

`forward` stands in the dictionary of the model. In each call `replays` finds the graph of the
call's shapes, captures one (`graph`), or calls the model as it is, with the reason. `watched` says
whether the model is still the one that was captured.
"""
