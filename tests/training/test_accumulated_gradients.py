"""cutlass_fused.accumulate_gradient: gradients of weights that are added to a buffer."""

import gc
import threading

import pytest
import torch

import cutlass_fused
from cutlass_fused import functional
from cutlass_fused.matmul import _native
from cutlass_fused.weights import accumulated

pytestmark = pytest.mark.skipif(isinstance(_native.load(), str), reason=f"{_native.load()}")
M, N, K = 12, 6, 5


def train_scale(x, weight, scale):
    return functional.linear_scale_batch_norm(x, weight, None, scale, None, None, training=True)


def train_softmax(x, weight, scale):
    run = functional.linear_batch_norm_scale_softmax
    return run(x, weight, None, scale, None, None, training=True)


RUNS = {
    "linear": lambda x, weight, scale: functional.linear(x, weight),
    "leaky_relu": lambda x, weight, scale: functional.linear_scale_leaky_relu(x, weight, None, 1.5),
    "scale_batch_norm": train_scale,
    "constant_scale_batch_norm": lambda x, weight, scale: train_scale(x, weight, scale.detach()),
    "batch_norm_scale_softmax": train_softmax,
}


def make(dtype=torch.float32):
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(N, K).to(dtype))
    x, scale = torch.randn(M, K).to(dtype).requires_grad_(), torch.rand(N).to(dtype) + 0.5
    wide = torch.promote_types(dtype, torch.float32)
    return x, weight, scale.requires_grad_(), torch.randn(N, K, dtype=wide)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", RUNS)
def test_what_is_added(name, dtype):
    x, weight, scale, buffer = make(dtype)
    y = RUNS[name](x, weight, scale)
    grad_y = torch.randn_like(y)
    asked = [x, weight] + ([scale] if "constant" not in name and "scale_" in name[:6] else [])
    expected = torch.autograd.grad(y, asked, grad_y)
    before = buffer.clone()
    cutlass_fused.accumulate_gradient(weight, buffer)
    for times in (1, 2):
        y = RUNS[name](x, weight, scale)
        y.backward(grad_y)
        tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
        total = before + times * expected[1].to(buffer.dtype)
        torch.testing.assert_close(buffer, total, rtol=tolerance, atol=tolerance)
        assert weight.grad is None
    torch.testing.assert_close(x.grad, 2 * expected[0])
    cutlass_fused.accumulate_gradient(weight, None)
    still = buffer.clone()
    RUNS[name](x, weight, scale).backward(grad_y)
    assert weight.grad is not None and torch.equal(buffer, still)


def test_hooks_learn_of_it_and_the_same_call_may_be_taken_twice():
    x, weight, _, buffer = make()
    calls = []
    weight.register_hook(calls.append)
    weight.register_post_accumulate_grad_hook(lambda weight: calls.append(weight.grad))
    cutlass_fused.accumulate_gradient(weight, buffer.zero_())
    y = functional.linear(x, weight)
    for _ in range(2):
        y.sum().backward(retain_graph=True)
    assert calls == [None] * 4
    torch.testing.assert_close(buffer, 2 * x.detach().sum(0).expand(N, K))


def test_modules():
    layer, x = cutlass_fused.nn.Linear(K, N), torch.randn(M, K)
    buffer = torch.zeros(N, K)
    cutlass_fused.accumulate_gradient(layer.weight, buffer)
    layer(x).sum().backward()
    torch.testing.assert_close(buffer, x.sum(0).expand(N, K))
    assert layer.weight.grad is None and layer.bias.grad is not None


def test_what_is_not_served():
    x, weight, scale, buffer = make()
    cutlass_fused.accumulate_gradient(weight, buffer)
    before = buffer.clone()
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(RuntimeError, match="accumulate_gradient: .* no autocast"),
    ):
        functional.linear(x, weight)
    with pytest.raises(RuntimeError, match="accumulate_gradient: a weight with a buffer"):
        functional.linear_scale_leaky_relu(x, weight, None, scale)
    y = functional.linear(x, weight)
    with pytest.raises(RuntimeError, match="got one that is differentiated"):
        torch.autograd.grad(y.square().sum(), [x, weight], create_graph=True)
    assert torch.equal(buffer, before)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        functional.linear(x, weight)
    compiled = torch.compile(functional.linear, backend="aot_eager")
    compiled(x, weight).sum().backward()
    assert weight.grad is not None and torch.equal(buffer, before)


def call_in_forward_mode(x, weight):
    with torch.autograd.forward_ad.dual_level():
        return functional.linear(x, weight)


REFUSED = {
    "sparse": lambda x, weight: functional.linear(x.detach().to_sparse(), weight),
    "sparse, batch norm": lambda x, weight: train_scale(x.detach().to_sparse(), weight, None),
    "forward mode": call_in_forward_mode,
    "another dtype": lambda x, weight: functional.linear(x.detach().bfloat16(), weight),
    "torch.func.grad": lambda x, weight: torch.func.grad(
        lambda x: functional.linear(x, weight).sum()
    )(x.detach()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_return_a_gradient(name):
    x, weight, _, buffer = make()
    cutlass_fused.accumulate_gradient(weight, buffer)
    with pytest.raises(RuntimeError, match="accumulate_gradient: a weight with a buffer"):
        REFUSED[name](x, weight)


def test_calls_without_gradients_are_as_ever():
    x, weight, _, buffer = make()
    cutlass_fused.accumulate_gradient(weight, buffer)
    with torch.no_grad():
        for name in ("sparse", "sparse, batch norm", "forward mode", "another dtype"):
            REFUSED[name](x, weight)


@pytest.mark.parametrize("create_graph", [False, True])
def test_the_gradient_of_the_scale_alone_adds_nothing(create_graph):
    x, weight, scale, buffer = make()
    cutlass_fused.accumulate_gradient(weight, buffer)
    before = buffer.clone()
    y = train_scale(x, weight, scale)
    torch.autograd.grad(y.square().mean(), scale, create_graph=create_graph)
    assert torch.equal(buffer, before)


@pytest.mark.parametrize("name", RUNS)
def test_losses_of_gradients_leave_a_part_in_grad(name):
    """As the docstring says: a user who reads the buffer alone would lose what the gradient of x
    gives the weight."""
    x, weight, scale, buffer = make(torch.float64)

    def run_backward():
        y = RUNS[name](x, weight, scale.detach())
        (slope,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        slope.square().sum().backward(inputs=[weight])

    run_backward()
    expected, weight.grad = weight.grad, None
    cutlass_fused.accumulate_gradient(weight, buffer.zero_())
    run_backward()
    assert weight.grad.abs().max() > 0 and buffer.abs().max() > 0
    torch.testing.assert_close(buffer + weight.grad, expected)
    assert "create_graph=True" in cutlass_fused.accumulate_gradient.__doc__


def test_threads_take_turns():
    weight, x = torch.nn.Parameter(torch.randn(256, 256)), torch.ones(1, 256)
    buffer, times = torch.zeros(256, 256), 100
    cutlass_fused.accumulate_gradient(weight, buffer)

    def run():
        for _ in range(times):
            functional.linear(x, weight).sum().backward()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(buffer, torch.full_like(buffer, 4.0 * times))


def test_a_weight_that_has_changed():
    x, weight, _, buffer = make()
    cutlass_fused.accumulate_gradient(weight, buffer)
    weight.data = torch.randn(1, K)
    with pytest.raises(RuntimeError, match=r"buffer must have the shape of weight, \(1, 5\)"):
        functional.linear(x, weight)


def test_a_weight_that_is_gone_keeps_nothing():
    _, weight, _, buffer = make()
    cutlass_fused.accumulate_gradient(weight, buffer)
    assert len(accumulated.buffers) > 0
    del weight
    gc.collect()
    assert not accumulated.buffers


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"weight": torch.ones(N, K)}, TypeError, "weight must be a torch.nn.Parameter, got"),
        ({"buffer": 1}, TypeError, "buffer must be a tensor or None, got int"),
        ({"buffer": torch.ones(N, K).half()}, RuntimeError, "buffer must be torch.float32, got"),
        ({"weight": torch.nn.Buffer(torch.ones(N, K))}, TypeError, "weight must be a torch.nn.Pa"),
        ({"buffer": torch.ones(K, N)}, RuntimeError, r"buffer must have the shape of weight, \(6"),
        ({"buffer": torch.ones(K, N).t()}, RuntimeError, "buffer must be contiguous, got strides"),
        (
            {"buffer": torch.ones(N, K, requires_grad=True)},
            RuntimeError,
            "buffer must require no gradient",
        ),
        (
            {"weight": torch.nn.Parameter(torch.ones(N, K), requires_grad=False)},
            RuntimeError,
            "weight must require a gradient",
        ),
        ({"weight": torch.nn.Parameter(torch.ones(N))}, RuntimeError, "weight must have 2"),
    ],
)
def test_bad_input(change, error, message):
    _, weight, _, buffer = make()
    arguments = {"weight": weight, "buffer": buffer} | change
    with pytest.raises(error, match=f"accumulate_gradient: {message}"):
        cutlass_fused.accumulate_gradient(**arguments)
    assert not accumulated.buffers
