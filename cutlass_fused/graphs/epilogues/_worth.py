"""Which products are ours. Each is to take no longer than with Inductor alone."""

import torch
from torch import fx

from ...matmul import _left
from ._cut import Cut
from ._product import Product

# Rows of the smallest fp32 product. At 16 x 512 x 512 each layer of a network of eight took 25 us
# with a product of ours in CUDA graphs, 22 us with cuBLAS (issue 31); at 4096 rows 37 and 68.
LEAST_ROWS = 32
# Elements of the largest weight that is split on its way, and columns in a kernel of its rows.
# With a program in it such a product saves a launch: in CUDA graphs a PINN with layers of width 20
# took 50 us at 256 rows and 57 at 4096, 64 and 71 by Inductor; 49 at 16 rows, 38 by Inductor. Where
# a gradient is recorded, steps of it took 1.02 to 1.3 times as long as by Inductor.
MOST_OF_NARROW, LEAST_ROWS_OF_NARROW = 2**12, 128
# Elements of the smallest weight of others in fp32: an interatomic potential of layers of 64 to 128
# took 1.16 times as long as by Inductor at 4096 atoms, 1.6 times at one, and as long at 256 and
# 16384; at 16 it took 0.44 of the time, which is lost by this.
LEAST_WEIGHT = 2**15
# Multiplications of the smallest alone: below, a launch is all of it, and ours takes more of the
# host.
LEAST_WORK = 2**20
# Columns and sums of the smallest in 16 bits: an interatomic potential of layers of 64 to 128 took
# 1.04 times as long at 4096 rows, and a step on its forces 1.3 times; a mapping network of layers
# of 512 took 0.43 of Inductor's time at 16 rows, and 0.55 at 4096.
LEAST_SIDE_16 = 192
# Rows of a batch that differs from run to run.
MANY = 2**12


def find_sizes(product: Product) -> tuple[int, int, int]:
    """M, N and K, or a guess where one is a symbol. Nothing is guarded."""
    m, k = product.a.meta["val"].shape
    return _guess_rows(m), product.n, _guess(k)


def is_worth(product: Product, cut: Cut, precision: str) -> bool:
    m, n, k = find_sizes(product)
    words = len(cut.program.lines) - (product.c is not None)
    if words <= 0:
        return False
    if product.value.dtype == torch.float32:
        is_narrow = n * k <= MOST_OF_NARROW and m >= LEAST_ROWS_OF_NARROW
        if is_narrow and cut.is_within and not _is_trained():
            return True
        return is_worth_alone(m, n, k, precision)
    # A kernel behind the product is one of Inductor's, too; and cuBLAS adds a bias.
    return cut.is_within and min(n, k) >= LEAST_SIDE_16 and m * n * k >= LEAST_WORK


def is_worth_alone(m: int, n: int, k: int, precision: str) -> bool:
    """Of a product in fp32. PyTorch's may be of less than the precision that is asked for."""
    is_wide = k > _left.SHORT_K and n * k >= LEAST_WEIGHT
    is_large = is_wide and m >= LEAST_ROWS and m * n * k >= LEAST_WORK
    return is_large or not _left.keeps_to(precision)


def _is_trained() -> bool:
    """Whether a gradient is recorded of what is being compiled."""
    context = torch._guards.TracingContext.try_get()
    found = None if context is None else context.fw_metadata
    return found is not None and any(each.requires_grad for each in found.output_info)


def is_chosen(precision: str, node: fx.Node) -> bool:
    """Of those that no program stands behind, of any op."""
    values = [each.meta.get("val") for each in node.all_input_nodes]
    shapes = [each.shape for each in values if isinstance(each, torch.Tensor) and each.dim() > 1]
    if len(shapes) < 2 or len(shapes[-1]) > 2:
        return True
    a, b = shapes[-2:]
    return is_worth_alone(_guess_rows(a[-2]), _guess(b[-1]), _guess(a[-1]), precision)


def _guess(size) -> int:
    """What a symbol was when it was made; of what only a run knows, a large number."""
    if isinstance(size, int):
        return size
    hint = size.node.hint
    return hint if isinstance(hint, int) else MANY


def _guess_rows(size) -> int:
    """Of a batch that differs from run to run a large one, whatever it was when its symbol was
    made: most of the time is spent on those. Fewer where it cannot have as many."""
    if isinstance(size, int):
        return size
    most = size.node.shape_env.bound_sympy(size.node.expr).upper
    return max(_guess(size), min(int(most), MANY)) if most.is_Integer else max(_guess(size), MANY)
