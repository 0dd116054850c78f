"""How the tensors of an op may lie on one dimension of a mesh, and which way costs least."""

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
# all that belongs to it. Inner: K, which leaves a sum over the processes.
CUTS = {
    **{op: each.cuts for op, each in (EPILOGUES | ROW_OPS).items()},
    "linear_scale_batch_norm_train": ("columns",),
    "linear_batch_norm_scale_softmax_inference": ("rows",),
    "linear_batch_norm_scale_softmax_train": (),
    "batch_norm_inference": ("rows", "columns"),
    "batch_norm_train": ("columns",),
    "split_weight": (),
    "bmm": (),
    "linear_out": (),
    "addmm": (),
    "addmm_out": (),
    "baddbmm": (),
    "baddbmm_out": (),
    "leaky_relu_gradient": (),
    "batch_norm_gradient": (),
    "batch_norm_scale_gradient": (),
    "unscale_columns": (),
    "scale_gradient": (),
    "softmax_gradient": (),
    "apply_program": (),
    "linear_epilogue": (),
}


class Layout(NamedTuple):
    """Placements by the names of the arguments, of the results in their order, and of the
    gradients that the shards of a call give."""

    cut: str
    inputs: dict[str, Placement]
    results: tuple[Placement, ...]
    gradients: dict[str, Placement]


def choose_layout(op: str, tensors: dict[str, DTensor], results: int, dim: int) -> Layout:
    """On this dimension of the mesh: that for which the fewest bytes are sent, then the fewest
    tensors change."""
    layouts = [_whole(tensors, results)]
    cuts, last = CUTS[op], tensors["x"].dim() - 1 if "x" in tensors else 0
    if "columns" in cuts:
        layouts.append(_columns(tensors, results, last))
    if "rows" in cuts:
        layouts += [_rows(tensors, results, row) for row in range(last)]
    if "inner" in cuts:
        layouts.append(_inner(tensors, last))

    def cost(layout: Layout) -> tuple[float, int]:
        moves = [
            (tensor, tensor.placements[dim], layout.inputs[name])
            for name, tensor in tensors.items()
            if tensor.placements[dim] != layout.inputs[name]
        ]
        return sum(_count_bytes(*move) for move in moves), len(moves)

    return min(layouts, key=cost)


def _count_bytes(tensor: Tensor, old: Placement, new: Placement) -> float:
    """What is sent, as a share of all bytes of the tensor; a process cuts its own copy for free."""
    if old.is_replicate():
        return 0
    reduced = 1 if old.is_partial() else 0
    gathered = 1 if new.is_replicate() else 0.5
    return tensor.numel() * tensor.dtype.itemsize * (reduced + gathered)


def _whole(tensors, results: int) -> Layout:
    inputs = dict.fromkeys(tensors, Replicate())
    return Layout("whole", inputs, (Replicate(),) * results, inputs)


def _rows(tensors, results: int, row: int) -> Layout:
    inputs = {name: Shard(row) if name == "x" else Replicate() for name in tensors}
    return Layout("rows", inputs, (Shard(row),) * results, _sum_up(inputs))


def _columns(tensors, results: int, last: int) -> Layout:
    inputs = {name: Shard(0) for name in tensors}
    inputs["x"] = Replicate() if "weight" in tensors else Shard(last)
    for name, tensor in tensors.items():
        if name == "num_batches_tracked" or (name in ROWS_OR_SCALARS and tensor.numel() == 1):
            inputs[name] = Replicate()
    # y, z if there is a product, and the statistics of the columns.
    matrices = 1 if results < 4 else 2
    placements = (Shard(last),) * matrices + (Shard(0),) * (results - matrices)
    return Layout("columns", inputs, placements, _sum_up(inputs))


def _inner(tensors, last: int) -> Layout:
    # The bias is added by one process, but its gradient is that of y, which all of them have.
    inputs = {"x": Shard(last), "weight": Shard(1), "bias": Replicate()}
    inputs = {name: inputs[name] for name in tensors}
    return Layout("inner", inputs, (Partial(),), inputs)


def _sum_up(inputs) -> dict[str, Placement]:
    """What every process reads gets a share of its gradient from each."""
    return {
        name: Partial() if placement.is_replicate() else placement
        for name, placement in inputs.items()
    }
