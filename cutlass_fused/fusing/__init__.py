"""Plain models whose linear layers, and what follows them, are computed by this package: `fuse`.

A module's forward is recorded once by torch.fx (`recording`), products and the chains behind them
are found in its graph (`products`, `regions`), and each becomes a site (`sites`), which decides in
every call between the fused functions and PyTorch's ops. What is made of the graph stands as the
forward of this one instance (`forward`), until `unfuse`. Parameters, buffers and modules stay.
"""

from .fuse import fuse, unfuse

__all__ = ["fuse", "unfuse"]
