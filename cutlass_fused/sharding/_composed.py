"""Ops of which something has to be added up over processes in between: their parts one by one.

A product over shards of K is added up, and what follows it runs behind that sum; the statistics of
rows that lie in several processes are merged; a softmax of rows that are cut has its sums added up.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .. import functional
from .._library import ops
from ..epilogues import EPILOGUES
from ..functional._arguments import no_autocast
from ..reference import compute_dtype, compute_rstd
from ..reference._arithmetic import round_kept
from ._all_reduce import all_reduce_forward
from ._softmax import softmax_over
from ._synchronized import find_statistics, normalize_over, update_running_statistics, widen

_normalize_op = ops.batch_norm_inference.default
_TRACKED = ("running_mean", "running_var", "num_batches_tracked")


class Groups(NamedTuple):
    """Of the processes that share one sum each: over K, over rows, over columns."""

    inner: tuple = ()
    rows: tuple = ()
    columns: tuple = ()

    def __bool__(self) -> bool:
        return any(self)


def run_composed(op: str, values: dict, groups: Groups) -> Tensor:
    """y of the shards of this process, differentiably. `values`: the arguments by their names."""
    x, dtype = values["x"], _find_dtype(values)
    with no_autocast(x):
        v = _find_v(op, values, groups)
        if op in EPILOGUES:
            described = EPILOGUES[op]
            return described.formula(v, *map(values.get, described.names)).to(dtype)
        if op.endswith("_train"):
            v = _normalize(op, v, values, groups)
        elif op.endswith("_inference"):
            names = ("running_mean", "running_var", "gamma", "beta")
            vectors = [widen(values.get(name), v.dtype) for name in names]
            v = functional.batch_norm(v, *vectors, eps=values["eps"])
        return _finish(op, v, values, groups, dtype)


def run_train_op(op: str, values: dict, groups: Groups) -> tuple[Tensor, ...]:
    """What the op of this name gives, without gradients: y, what it keeps of z, mean and rstd."""
    dtype, v = _find_dtype(values), _find_v(op, values, groups)
    batch = find_statistics(v, groups.rows)
    affine, eps = [widen(values.get(name), v.dtype) for name in ("gamma", "beta")], values["eps"]
    y = _normalize_op(v, batch.mean, batch.variance, *affine, eps)
    update_running_statistics(batch, *map(values.get, _TRACKED), values["momentum"])
    results = batch.mean, compute_rstd(batch.variance, eps)
    y = _finish(op, y, values, groups, dtype)
    if "weight" not in values:
        return y, *results
    centre = values.get("centre")
    kept = round_kept(v, bool(values.get("keep_z")), dtype, batch.mean, None)
    if centre is not None:
        kept = v - batch.mean
        rest = find_statistics(kept, groups.rows).mean
        centre.copy_(rest)
        kept = round_kept(kept, bool(values.get("keep_z")), dtype, rest, None)
    return y, kept, *results


def _find_v(op: str, values: dict, groups: Groups) -> Tensor:
    """What stands in front of the statistics, or of the formula of an epilogue."""
    x = values["x"]
    if "weight" not in values:
        return x
    bias, scale = values.get("bias"), values.get("scale")
    options = {"precision": values["precision"], "out_dtype": compute_dtype(x)}
    z = functional.linear(x, values["weight"], None if groups.inner else bias, **options)
    if groups.inner:
        for group in groups.inner:
            z = all_reduce_forward(z, group)
        z = z if bias is None else z + bias
    return z * scale if op == "linear_scale_batch_norm_train" and scale is not None else z


def _normalize(op: str, v: Tensor, values: dict, groups: Groups) -> Tensor:
    tracked = tuple(map(values.get, _TRACKED))
    affine = (values.get("gamma"), values.get("beta"))
    return normalize_over(op, groups.rows, v, tracked, *affine, values["momentum"], values["eps"])


def _finish(op: str, v: Tensor, values: dict, groups: Groups, dtype: torch.dtype) -> Tensor:
    """Behind a batch norm, and a softmax alone."""
    if "softmax" not in op:
        return v.to(dtype)
    scale = values.get("scale")
    v = v if scale is None else v * scale
    if groups.columns:
        return softmax_over(v, groups.columns, dtype)
    return functional.softmax(v, out_dtype=v.dtype).to(dtype)


def _find_dtype(values: dict) -> torch.dtype:
    """Of the result: by out or out_dtype, a dtype or its name."""
    found = values.get("out") or values.get("out_dtype") or values["x"].dtype
    return getattr(torch, found) if isinstance(found, str) else found
