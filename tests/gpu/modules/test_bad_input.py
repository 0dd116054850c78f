"""The CUDA kernels give the same messages, before anything is launched."""

import pytest
import torch
from bad_calls import K, M, N, list_bad_calls, list_wrong_dtypes, make_good
from calls import ALL_OPS, TRAIN_OPS, name_in_messages
from judge_call import judge_call

from cutlass_fused import functional, nn

pytestmark = pytest.mark.gpu

IDS, BAD = zip(*list_bad_calls(), strict=True)


def raised_by(function, kind=RuntimeError):
    with pytest.raises(kind) as error:
        function()
    return str(error.value)


def count_allocations():
    return torch.cuda.memory_stats()["allocation.all.allocated"]


@pytest.mark.parametrize("op", ALL_OPS)
def test_good_calls_are_good(device, op):
    for dtype in (torch.float16, torch.float32):
        judge_call(make_good(op, device, dtype))


@pytest.mark.parametrize(("op", "dtype", "bad", "message"), BAD, ids=IDS)
def test_message(device, op, dtype, bad, message):
    """Nothing was allocated, so nothing was launched either, and nothing was updated."""
    call = bad.spoil(make_good(op, device, dtype))
    before = {name: tensor.clone() for name, tensor in call.updated().items()}
    allocations = count_allocations()
    assert message in raised_by(call.run)
    assert count_allocations() == allocations
    for name, tensor in call.updated().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("op", ALL_OPS)
def test_good_calls_after_bad_ones(device, op):
    """No error stays behind in the CUDA context or on the stream."""
    for name, dtype, bad, _ in BAD:
        if name == op:
            raised_by(bad.spoil(make_good(op, device, dtype)).run)
    test_good_calls_are_good(device, op)
    torch.cuda.synchronize()


@pytest.mark.parametrize("dtype", (torch.float64, *list_wrong_dtypes()), ids=str)
@pytest.mark.parametrize("op", ALL_OPS)
def test_dtype_of_the_matrices(device, op, dtype):
    call = make_good(op, device).map_tensors(lambda tensor: tensor.to(dtype))
    message = raised_by(call.run)
    assert f"{name_in_messages(op)}: x must be float16, bfloat16 or float32, got " in message
    if dtype not in (torch.float8_e4m3fn, torch.complex64):
        assert message.partition("got ")[2].startswith(str(dtype)[6:])


@pytest.mark.parametrize(
    ("op", "name"),
    [(op, name) for op in ALL_OPS for name in make_good(op, "cpu").tensors() if name != "x"],
)
def test_tensor_on_the_cpu(device, op, name):
    """Also a one-element scale: nothing is copied in silence."""
    call = make_good(op, device)
    call = call.change(**{name: getattr(call, name).cpu()})
    expected = f"{name_in_messages(op)}: {name} must be on the device of x, cuda:0, got cpu"
    assert expected in raised_by(call.run)
    if name == "scale":
        call = call.change(scale=torch.ones(()).half())
        assert expected in raised_by(call.run)


@pytest.mark.parametrize("op", [op for op in ALL_OPS if len(make_good(op, "cpu").tensors()) > 1])
def test_x_on_the_cpu(device, op):
    """x alone would be computed on the CPU."""
    call = make_good(op, device)
    message = raised_by(call.change(x=call.x.cpu()).run)
    assert f"{name_in_messages(op)}: " in message and "must be" in message and "cpu" in message


@pytest.mark.parametrize(
    ("op", "name"),
    [(op, name) for op in ALL_OPS for name in make_good(op, "cpu").tensors() if name != "x"],
)
def test_tensor_on_another_gpu(device, op, name):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    call = make_good(op, device)
    call = call.change(**{name: getattr(call, name).to("cuda:1")})
    expected = f"{name_in_messages(op)}: {name} must be on the device of x, cuda:0, got cuda:1"
    assert expected in raised_by(call.run)


@pytest.mark.parametrize("op", [op for op in ALL_OPS if op.endswith("inference")])
def test_none_for_a_tensor(device, op):
    """PyTorch hands it on to the op."""
    call = make_good(op, device).change(running_mean=None)
    assert f"{name_in_messages(op)}: running_mean must be a tensor, got None" in raised_by(call.run)


def test_functional(device):
    x, weight = torch.ones(M, K, device=device), torch.ones(N, K, device=device)
    with pytest.raises(ValueError, match="'ieee', 'tf32' or None, got 'fp8'"):
        functional.linear(x, weight, precision="fp8")
    expected = "linear_scale_leaky_relu: bias must be on the device of x, cuda:0, got cpu"
    for grad in (False, True):
        weight.requires_grad_(grad)
        message = raised_by(lambda: functional.linear_scale_leaky_relu(x, weight, torch.ones(N)))
        assert expected in message


# ---- batches of one, through the functions and the modules ----

MODULES = {
    "LinearScaleBatchNorm1d": lambda: nn.LinearScaleBatchNorm1d(K, N, (N,)),
    "LinearBatchNorm1dScaleSoftmax": lambda: nn.LinearBatchNorm1dScaleSoftmax(K, N),
    "BatchNorm1d": lambda: nn.BatchNorm1d(K),
}


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("kind", MODULES)
def test_batch_of_one(device, kind, grad, momentum):
    """Refused in PyTorch's words; neither the statistics nor the count change."""
    module = MODULES[kind]().to(device)
    bn = module if kind == "BatchNorm1d" else module.bn
    bn.momentum = momentum
    module(torch.randn(5, K, device=device))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with torch.set_grad_enabled(grad):
        message = raised_by(lambda: module(torch.randn(1, K, device=device)), ValueError)
        assert "Expected more than 1 value per channel when training, got input size" in message
        raised_by(lambda: module(torch.randn(5, K + 1, device=device)))
        raised_by(lambda: module(torch.randn(5, K)))
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert int(bn.num_batches_tracked) == 1
    with torch.set_grad_enabled(grad):
        assert module.eval()(torch.randn(1, K, device=device)).isfinite().all()


@pytest.mark.parametrize("op", TRAIN_OPS)
def test_refused_calls_in_a_graph_leave_it_empty(device, op):
    """What is refused while a graph is captured is not part of it."""
    call = make_good(op, device)
    before = {name: tensor.clone() for name, tensor in call.updated().items()}
    graph = torch.cuda.CUDAGraph()
    row = call.x[:1].clone()
    other = torch.zeros(1, device=device)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        other += 1
        raised_by(call.change(x=row).run)
    graph.replay()
    torch.cuda.synchronize()
    assert int(other) == 1
    for name, tensor in call.updated().items():
        assert torch.equal(tensor, before[name]), name
