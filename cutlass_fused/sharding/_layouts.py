"""How the tensors of an op may lie on one dimension of a mesh, and which way costs least."""

import math
from collections.abc import Collection
from typing import NamedTuple

from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from ..epilogues import EPILOGUES
from ..epilogues._description import RowOrScalar
from ..row_ops import ROW_OPS

# The names of operands of one element or of one for each column.
ROWS_OR_SCALARS = {"scale": None} | {
    vector.name: None
    for epilogue in EPILOGUES.values()
    for vector in epilogue.vectors
    if isinstance(vector, RowOrScalar)
}
# What may be cut. Rows: each of x alone, without the statistics of a batch. Columns: each of y and
# all that belongs to it. Inner: K, which leaves a sum over the processes. Three more have something
# added up in between (_composed.py). Sum: K, in front of what follows the product. Batch: rows,
# whose statistics are merged. Parts: columns of a softmax, whose sums are added up.
COMPOSED = ("sum", "batch", "parts")
CUTS = {
    **{op: each.cuts for op, each in (EPILOGUES | ROW_OPS).items()},
    **{op: (*each.cuts, "sum") for op, each in EPILOGUES.items() if "inner" not in each.cuts},
    "softmax": ("rows", "parts"),
    "linear_scale_batch_norm_train": ("columns", "batch", "sum"),
    "linear_batch_norm_scale_softmax_inference": ("rows", "parts", "sum"),
    "linear_batch_norm_scale_softmax_train": ("batch", "parts", "sum"),
    "batch_norm_inference": ("rows", "columns"),
    "batch_norm_train": ("columns", "batch"),
    "split_weight": (),
}


WIDE = 4  # bytes of a number in sums


class Layout(NamedTuple):
    """Placements by the names of the arguments, of the results in their order, and of the
    gradients that the shards of a call give; `sent`: the bytes that are added up in between."""

    cut: str
    inputs: dict[str, Placement]
    results: tuple[Placement, ...]
    gradients: dict[str, Placement]
    sent: int = 0


def choose_layouts(op: str, tensors: dict[str, DTensor], results: int) -> list[Layout]:
    """For each dimension of the mesh."""
    mesh, found = next(iter(tensors.values())).device_mesh, []
    for dim in range(mesh.ndim):
        # A group is that of one dimension, of which statistics and sums of rows have one.
        taken = {each.cut for each in found} & {"batch", "parts"}
        found.append(choose_layout(op, tensors, results, dim, taken))
    return found


def choose_layout(
    op: str, tensors: dict[str, DTensor], results: int, dim: int, taken: Collection[str] = ()
) -> Layout:
    """On this dimension of the mesh; `taken`: cuts that are not to be."""
    cuts = [cut for cut in CUTS[op] if cut not in taken]
    return choose(_list_layouts(cuts, tensors, results), tensors, dim)


def _list_layouts(cuts: list[str], tensors, results: int) -> list[Layout]:
    layouts = [make_whole(tensors, results)]
    last = tensors["x"].dim() - 1 if "x" in tensors else 0
    if "columns" in cuts:
        layouts.append(_columns(tensors, results, last))
    if "rows" in cuts:
        layouts += [_rows(tensors, results, row) for row in range(last)]
    if "inner" in cuts:
        layouts.append(_inner(tensors, last))
    if "sum" in cuts:
        layouts.append(_sum(tensors, results, last))
    if "batch" in cuts:
        layouts.append(_batch(tensors, results))
    if "parts" in cuts:
        columns = _columns(tensors, results, last)
        rows = math.prod(tensors["x"].shape[:-1])
        layouts.append(columns._replace(cut="parts", sent=4 * rows * WIDE))
    return layouts


def choose(layouts: list[Layout], tensors: dict[str, DTensor], dim: int) -> Layout:
    """On this dimension of the mesh: that for which the fewest bytes are sent, then the fewest
    tensors change."""

    def cost(layout: Layout) -> tuple[float, int]:
        moves = [
            (tensor, tensor.placements[dim], layout.inputs[name])
            for name, tensor in tensors.items()
            if tensor.placements[dim] != layout.inputs[name]
        ]
        # Matrices that lie so already were cut for this.
        matrices = [tensors[name] for name in ("x", "weight") if name in tensors]
        is_asked = not any(tensor is each for tensor, *_ in moves for each in matrices)
        sent = 0 if is_asked else layout.sent
        return sent + sum(_count_bytes(*move) for move in moves), len(moves)

    return min(layouts, key=cost)


def _count_bytes(tensor: Tensor, old: Placement, new: Placement) -> float:
    """What is sent, as a share of all bytes of the tensor; a process cuts its own copy for free."""
    if old.is_replicate():
        return 0
    reduced = 1 if old.is_partial() else 0
    gathered = 1 if new.is_replicate() else 0.5
    return tensor.numel() * tensor.dtype.itemsize * (reduced + gathered)


def make_whole(tensors, results: int) -> Layout:
    inputs = dict.fromkeys(tensors, Replicate())
    return Layout("whole", inputs, (Replicate(),) * results, inputs)


def _rows(tensors, results: int, row: int) -> Layout:
    inputs = {name: Shard(row) if name == "x" else Replicate() for name in tensors}
    return Layout("rows", inputs, (Shard(row),) * results, sum_up(inputs))


def _columns(tensors, results: int, last: int) -> Layout:
    inputs = {name: Shard(0) for name in tensors}
    inputs["x"] = Replicate() if "weight" in tensors else Shard(last)
    for name, tensor in tensors.items():
        if name == "num_batches_tracked" or (name in ROWS_OR_SCALARS and tensor.numel() == 1):
            inputs[name] = Replicate()
    # y, z if there is a product, and the statistics of the columns.
    matrices = 1 if results < 4 else 2
    placements = (Shard(last),) * matrices + (Shard(0),) * (results - matrices)
    return Layout("columns", inputs, placements, sum_up(inputs))


def _inner(tensors, last: int) -> Layout:
    # The bias is added by one process, but its gradient is that of y, which all of them have.
    inputs = {"x": Shard(last), "weight": Shard(1), "bias": Replicate()}
    inputs = {name: inputs[name] for name in tensors}
    return Layout("inner", inputs, (Partial(),), inputs)


def _sum(tensors, results: int, last: int) -> Layout:
    """Behind the sum all processes go on with the same numbers."""
    inputs = {name: Replicate() for name in tensors} | {"x": Shard(last), "weight": Shard(1)}
    z = math.prod(tensors["x"].shape[:-1]) * tensors["weight"].shape[0]
    return Layout("sum", inputs, (Replicate(),) * results, inputs, 2 * z * WIDE)


def _batch(tensors, results: int) -> Layout:
    inputs = {name: Shard(0) if name == "x" else Replicate() for name in tensors}
    # y, z if there is a product, and the statistics, which are those of all rows.
    matrices = 1 if results < 4 else 2
    placements = (Shard(0),) * matrices + (Replicate(),) * (results - matrices)
    n = tensors["weight"].shape[0] if "weight" in tensors else tensors["x"].shape[-1]
    return Layout("batch", inputs, placements, sum_up(inputs), 4 * n * 2 * WIDE)


def sum_up(inputs) -> dict[str, Placement]:
    """What every process reads gets a share of its gradient from each."""
    return {
        name: Partial() if placement.is_replicate() else placement
        for name, placement in inputs.items()
    }
