"""Products of sizes that are results of the graph, as behind `nonzero`.

The switch asks whether a size is 0, or K short. Nobody can tell while the graph is compiled, and
PyTorch's product, once there, could be of less than the word promises. Our ops take any size.
"""

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false

from .._library import ops
from ..matmul import _left
from ..matmul._epilogue import are_numbers
from ._sums import add_scaled


def serve_unknown(
    name: str, word: str, *operands: Tensor, beta=1, alpha=1, use_gelu=False
) -> Tensor | str:
    """What SERVED_IN_GRAPHS[name] gives where M, N or K is not 0, by ops that ask for none."""
    *c, a, b = operands
    if alpha == 0:
        return _left.ALPHA
    if not are_numbers(beta, alpha):
        return _left.SCALES
    if not all(_left.is_like(each, a) for each in (b, *c)):
        return _left.ODD
    k = a.shape[-1]
    # PyTorch's own product has seen to it already, or does so when it runs.
    torch._check(k == b.shape[-2])
    if guard_or_false(k <= _left.SHORT_K) and _left.keeps_to(word):
        return _left.SHORT
    if a.dim() == 3:
        torch._check(a.shape[0] == b.shape[0])
        z = ops.bmm.default(a, b.transpose(1, 2), word)
    else:
        z = ops.linear.default(a, b.t(), None, word)
    if alpha != 1:
        z = z.mul_(alpha)
    if c:
        z = add_scaled(z, c[0], beta)
    if name != "_addmm_activation":
        return z
    if use_gelu:
        return torch.ops.aten.gelu_(z, approximate="tanh" if z.is_cuda else "none")
    return z.relu_()
