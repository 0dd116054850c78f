"""The CUDA kernels give the same messages, before anything is launched."""

import pytest
import torch
from accuracy import Judge
from bad_calls import K, M, N, list_bad_calls, list_wrong_dtypes, make_good
from calls import OPS

from cutlass_fused import functional

pytestmark = pytest.mark.gpu

IDS, BAD = zip(*list_bad_calls(), strict=True)


def raised_by(function, kind=RuntimeError):
    with pytest.raises(kind) as error:
        function()
    return str(error.value)


@pytest.mark.parametrize("op", OPS)
def test_good_calls_are_good(device, op):
    for dtype in (torch.float16, torch.float32):
        call = make_good(op, device, dtype)
        Judge(call).check(call.run())


@pytest.mark.parametrize(("op", "dtype", "bad", "message"), BAD, ids=IDS)
def test_message(device, op, dtype, bad, message):
    call = bad.spoil(make_good(op, device, dtype))
    assert message in raised_by(call.run)


@pytest.mark.parametrize("op", OPS)
def test_good_calls_after_bad_ones(device, op):
    """No error stays behind in the CUDA context or on the stream."""
    for name, dtype, bad, _ in BAD:
        if name == op:
            raised_by(bad.spoil(make_good(op, device, dtype)).run)
    test_good_calls_are_good(device, op)
    torch.cuda.synchronize()


@pytest.mark.parametrize("dtype", (torch.float64, *list_wrong_dtypes()), ids=str)
@pytest.mark.parametrize("op", OPS)
def test_dtype_of_the_matrices(device, op, dtype):
    call = make_good(op, device).map_tensors(lambda tensor: tensor.to(dtype))
    message = raised_by(call.run)
    assert f"{op}: x must be float16, bfloat16 or float32, got " in message
    if dtype not in (torch.float8_e4m3fn, torch.complex64):
        assert message.partition("got ")[2].startswith(str(dtype)[6:])


@pytest.mark.parametrize(
    ("op", "name"),
    [(op, name) for op in OPS for name in make_good(op, "cpu").tensors() if name != "x"],
)
def test_tensor_on_the_cpu(device, op, name):
    """Also a one-element scale: nothing is copied in silence."""
    call = make_good(op, device)
    call = call.change(**{name: getattr(call, name).cpu()})
    assert f"{op}: {name} must be on the device of x, cuda:0, got cpu" in raised_by(call.run)
    if name == "scale":
        call = call.change(scale=torch.ones(()).half())
        assert f"{op}: scale must be on the device of x, cuda:0, got cpu" in raised_by(call.run)


@pytest.mark.parametrize("op", OPS)
def test_x_on_the_cpu(device, op):
    call = make_good(op, device)
    message = raised_by(call.change(x=call.x.cpu()).run)
    assert f"{op}: " in message and "must be" in message and "cpu" in message


@pytest.mark.parametrize(
    ("op", "name"),
    [(op, name) for op in OPS for name in make_good(op, "cpu").tensors() if name != "x"],
)
def test_tensor_on_another_gpu(device, op, name):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    call = make_good(op, device)
    call = call.change(**{name: getattr(call, name).to("cuda:1")})
    assert f"{op}: {name} must be on the device of x, cuda:0, got cuda:1" in raised_by(call.run)


def test_functional(device):
    x, weight = torch.ones(M, K, device=device), torch.ones(N, K, device=device)
    with pytest.raises(ValueError, match="'ieee', 'tf32' or None, got 'fp8'"):
        functional.linear(x, weight, precision="fp8")
    expected = "linear_scale_leaky_relu: bias must be on the device of x, cuda:0, got cpu"
    for grad in (False, True):
        weight.requires_grad_(grad)
        message = raised_by(lambda: functional.linear_scale_leaky_relu(x, weight, torch.ones(N)))
        assert expected in message
