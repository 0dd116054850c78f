"""A batch norm in training that no product holds: behind a chain, by its own kernels."""

import torch
from torch import Tensor, nn

from ..functional._derived import native
from ..nn._parts import normalize

# Elements. Where a gradient is recorded and its function is in Python, the host takes some 50 us
# longer; eager PyTorch reads and writes so many in that time ("Layers alone" of bench/README.md: it
# takes up to 1.97 times as long there as ours at 4096 x 4096, which moves 0.2 GB).
_LEAST_IN_PYTHON = 4096 * 4096


class Norm:
    """n(v), which is norm(v)."""

    def __init__(self, norm: nn.BatchNorm1d) -> None:
        self.norm = norm

    def __call__(self, v: Tensor) -> Tensor:
        if v.is_cuda and v.numel() < _LEAST_IN_PYTHON and torch.is_grad_enabled():
            if not native.is_defined():
                return self.norm(v)
        return normalize(self.norm, v)
