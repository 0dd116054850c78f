"""Plain models whose linear layers, and what follows them, are computed by this package: `fuse`.

A module's forward is recorded once by torch.fx, and products and the chains behind them are found
in its graph (`recorded/`). Each becomes a site (`sites`), which decides in every call between a
fused function (`calls`) and PyTorch's ops. What is made of the graph (`plan`) stands as the forward
of this one instance (`forward`), until `unfuse`. Parameters, buffers and modules stay.
"""

from .install import fuse, unfuse

__all__ = ["fuse", "unfuse"]
