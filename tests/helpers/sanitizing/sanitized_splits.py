"""Calls that launch every kernel that renews a split."""

import itertools

import torch
from split_layout import cut, cut_kept, draw_weight
from tiles import has_sm90_kernels

ops = torch.ops.cutlass_fused


def run_renewed(single=False):
    """Rows in one warp and in all threads, and longer than they hold, aligned and not."""
    if not has_sm90_kernels(torch.device("cuda")):
        return 0
    launches, shapes = 0, ((33, 232), (9, 4096), (5, 20001))
    for shape, aligned, precision in itertools.product(shapes, (True, False), ("ieee", "tf32")):
        weight = draw_weight(shape, aligned)
        kept = ops.keep_split(weight, precision)
        weight[1] += 1
        ops.renew_split(kept, weight, precision)
        _, found = cut_kept(kept, shape, precision)
        assert torch.equal(found, cut(ops.split_weight(weight, precision), shape, precision))
        launches += 3
    return launches
