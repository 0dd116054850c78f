"""cutlass_fused.accumulate_gradient on the GPU: what products add to a buffer."""

import pytest
import torch

import cutlass_fused
from cutlass_fused import functional
from cutlass_fused.matmul import _native

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(isinstance(_native.load(), str), reason=f"{_native.load()}"),
]

SHAPES = [(16, 64, 48), (70, 33, 101), (2048, 512, 256), (1024, 1024, 1024), (3000, 8, 8)]


def make(shape, dtype):
    torch.manual_seed(0)
    m, n, k = shape
    weight = torch.nn.Parameter(torch.randn(n, k, device="cuda").to(dtype))
    x, grad_y = (torch.randn(m, size, device="cuda").to(dtype) for size in (k, n))
    return x, weight, grad_y, torch.randn(n, k, device="cuda")


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_added(shape, dtype, precision):
    x, weight, grad_y, start = make(shape, dtype)
    exact = start.double() + grad_y.double().t() @ x.double()
    size = start.double().abs() + grad_y.double().abs().t() @ x.double().abs()
    results = []
    for _ in range(2):
        buffer = start.clone()
        cutlass_fused.accumulate_gradient(weight, buffer)
        functional.linear(x, weight, precision=precision).backward(grad_y)
        results.append(buffer)
    assert weight.grad is None
    assert torch.equal(*results)
    # 16-bit products are exact, and added up in fp32.
    bound = 2.0**-10 if dtype == torch.float32 and precision == "tf32" else 2.0**-19
    assert ((results[0] - exact).abs() <= bound * size).all()


def test_no_pass_of_its_own():
    """No gradient is written that another kernel would add."""
    x, weight, grad_y, buffer = make((1024, 1024, 1024), torch.bfloat16)
    cutlass_fused.accumulate_gradient(weight, buffer)
    functional.linear(x, weight).backward(grad_y)
    y = functional.linear(x, weight)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        y.backward(grad_y)
        torch.cuda.synchronize()
    assert not any("elementwise" in event.name for event in profile.events())


def test_another_stream_and_a_graph():
    x, weight, grad_y, start = make((512, 256, 128), torch.float32)
    buffer = start.clone()
    cutlass_fused.accumulate_gradient(weight, buffer)
    functional.linear(x, weight).backward(grad_y)
    once = buffer - start
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        functional.linear(x, weight).backward(grad_y)
    buffer.copy_(start)
    for _ in range(3):
        graph.replay()
    torch.testing.assert_close(buffer, start + 3 * once, rtol=1e-4, atol=1e-3)
