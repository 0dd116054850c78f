"""Chains behind views: rows that stay whole go on, others end it."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from cutlass_fused.graphs.epilogues import _fuse

M, N, K = 8, 6, 40
ROWS = {
    "two by two": (M // 2, 2, N),
    "pairs in one": (M // 2, 2 * N),
    "halves": (2 * M, N // 2),
    "halves of rows": (M, 2, N // 2),
    "all in one": (1, M * N),
    "columns": (M * N, 1),
}


def softmax(z):
    power = (z - z.amax(-1, True)).exp()
    return power / power.sum(-1, True)


@pytest.mark.parametrize("behind", [torch.relu, softmax, lambda z: z * 2.0 - z.abs()])
@pytest.mark.parametrize("shape", ROWS.values(), ids=ROWS)
def test_only_whole_rows_are_gone_on_with(shape, behind, fused_on_cpu):
    def function(x, w, c):
        z = torch.tanh(torch.addmm(c, x, w.t()))
        return behind(z.view(shape))

    inputs = [torch.randn(size) for size in ((M, K), (N, K), (N,))]
    traced = make_fx(function, tracing_mode="fake")(*inputs)
    _fuse.fuse_graph(traced.graph, "ieee")
    traced.graph.lint()
    traced.recompile()
    called = [str(node.target) for node in traced.graph.nodes]
    assert sum("linear_epilogue" in name for name in called) == 1
    found = traced(*inputs)
    assert found.shape == shape
    torch.testing.assert_close(found, function(*inputs))
    if behind is softmax:
        is_left = any("aten.exp" in name for name in called)
        assert is_left == (shape[-1] != N)
