"""Which products the pass takes, of tensors on a GPU that is not there."""

import pytest
import torch
from accuracy import matmul_settings
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from cutlass_fused.graphs.epilogues import _fuse, _worth

EPILOGUE, ATEN = "cutlass_fused::linear_epilogue", "aten::addmm"


def list_products(function, m, n, k, dtype=torch.float32, precision="ieee"):
    with FakeTensorMode():
        x, w, c = (torch.empty(size, device="cuda", dtype=dtype) for size in ((m, k), (n, k), (n,)))
        traced = make_fx(function)(x, w, c)
    _fuse.fuse_graph(traced.graph, precision)
    traced.graph.lint()
    names = [n.target._schema.name for n in traced.graph.nodes if hasattr(n.target, "_schema")]
    return [name for name in names if "linear" in name or "mm" in name]


def silu(x, w, c):
    z = torch.addmm(c, x, w.t())
    return z / (1 + torch.exp(-z))


def bias(x, w, c):
    return torch.addmm(c, x, w.t())


def softmax(x, w, c):
    z = torch.addmm(c, x, w.t())
    power = (z - z.amax(1, True)).exp()
    return power / power.sum(1, True)


def relu_of_a_sum(x, w, c):
    return torch.addmm(c, x, w.t()).relu()


LARGE = 1024, 512, 256
FEW_ROWS = _worth.LEAST_ROWS - 1, 4096, 4096


@pytest.mark.parametrize("function", [silu, softmax, relu_of_a_sum])
def test_fp32(function):
    assert list_products(function, *LARGE) == [EPILOGUE]
    for sizes in (FEW_ROWS, (64, 64, 64), (1024, 512, 32), (4096, 128, 128)):
        assert list_products(function, *sizes) == [ATEN]


def test_narrow_fp32(monkeypatch):
    """A program saves a launch, where no gradient is recorded."""
    for function in (silu, softmax):
        found = [EPILOGUE if function is silu else ATEN]
        for sizes in ((4096, 64, 64), (256, 20, 20)):
            assert list_products(function, *sizes) == found
    monkeypatch.setattr(_worth, "_is_trained", lambda: True)
    assert list_products(silu, 4096, 64, 64) == [ATEN]


@pytest.mark.parametrize("is_trained", [True, False])
def test_whether_a_gradient_is_recorded(is_trained):
    found = []

    def backend(graph, inputs):
        def look(graph, inputs):
            found.append(_worth._is_trained())
            return make_boxed_func(graph.forward)

        return aot_autograd(fw_compiler=look, bw_compiler=look)(graph, inputs)

    torch._dynamo.reset()
    with torch.set_grad_enabled(is_trained):
        y = torch.compile(torch.nn.Linear(3, 4), backend=backend)(torch.randn(2, 3))
    if is_trained:
        y.sum().backward()
    assert found == ([True, True] if is_trained else [False])


def test_fp32_alone():
    assert list_products(bias, *LARGE) == ["cutlass_fused::linear"]
    assert list_products(bias, *FEW_ROWS) == [ATEN]


@pytest.mark.parametrize("function", [silu, bias])
def test_what_pytorch_may_compute_in_tf32_is_ours_at_any_size(function):
    with matmul_settings("tf32"):
        assert list_products(function, *FEW_ROWS) != [ATEN]
        assert list_products(function, *FEW_ROWS, precision="tf32") == [ATEN]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_16_bits(dtype):
    assert list_products(silu, *LARGE, dtype) == [EPILOGUE]
    assert list_products(relu_of_a_sum, *LARGE, dtype) == [EPILOGUE]
    for sizes in ((4096, 128, 512), (4096, 512, 128)):
        assert list_products(silu, *sizes, dtype) == [ATEN]
    # cuBLAS adds a bias; and a kernel behind the product is Inductor's too.
    for function in (bias, softmax):
        assert list_products(function, *LARGE, dtype) == [ATEN]


def test_what_is_left():
    assert list_products(silu, *LARGE, torch.float64) == [ATEN]
    assert list_products(silu, 0, 512, 256) == [ATEN]


@pytest.mark.parametrize("most, op", [(16384, EPILOGUE), (_worth.LEAST_ROWS - 1, ATEN)])
def test_a_batch_of_any_size_is_taken_for_a_large_one(most, op):
    """Whatever the example has: a package for up to 16384 rows that was exported with 7 held
    nothing of ours."""
    found = []

    def backend(graph, inputs):
        _fuse.fuse_graph(graph.graph, "ieee")
        names = [n.target._schema.name for n in graph.graph.nodes if hasattr(n.target, "_schema")]
        found.extend(name for name in names if "linear" in name or "mm" in name)
        return make_boxed_func(graph.forward)

    def look(graph, inputs):
        return aot_autograd(fw_compiler=backend)(graph, inputs)

    with FakeTensorMode(allow_non_fake_inputs=True):
        _, n, k = LARGE
        x, w, c = (torch.empty(size, device="cuda") for size in ((7, k), (n, k), (n,)))
    torch._dynamo.reset()
    torch._dynamo.mark_dynamic(x, 0, min=2, max=most)
    torch.compile(silu, backend=look)(x, w, c)
    assert found == [op]
