"""What the words promise on a GPU: errors, beside and against PyTorch's own setting."""

import threading

import pytest
import torch
from accuracy import matmul_settings
from switched import check_like_eager, count_under, outcomes

import cutlass_fused
from cutlass_fused.matmul import _left, _native
from cutlass_fused.precision import bound_error

pytestmark = pytest.mark.gpu

# (M, N, K), each served.
SHAPES = [
    (64, 64, 64),  # one small tile
    (133, 264, 96),  # no tile divides M and N
    (1, 1000, 512),  # one row
    (257, 129, 4097),  # odd everything: rows that are not aligned
    (1024, 1024, 1024),  # large
    (16, 4096, 4096),  # few rows, long K
]
# What PyTorch allows, and the word that must hold all the same.
AGAINST = [("tf32", "ieee"), ("ieee", "ieee"), ("ieee", "tf32"), ("tf32", "tf32")]


def make(*shape):
    return torch.randn(shape, device="cuda")


@pytest.mark.parametrize("allowed, word", AGAINST)
@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mm(shape, columns, allowed, word):
    m, n, k = shape
    a, b = (make(k, m).t(), make(n, k).t()) if columns else (make(m, k), make(k, n))
    truth = a.double() @ b.double()
    with matmul_settings(word):
        eager = (a @ b - truth).abs().max()
    with matmul_settings(allowed), count_under(word) as report:
        y = a @ b
    if outcomes(report) == {"served"}:  # the bits of the op, whatever PyTorch's setting is
        assert torch.equal(y, torch.ops.cutlass_fused.linear(a, b.t(), None, word))
    else:
        with matmul_settings(word):
            assert outcomes(report) == {_left.CUBLAS} and torch.equal(y, a @ b)
        assert allowed == word
    error = (y - truth).abs()
    bound = bound_error(k, word) * (a.abs().double() @ b.abs().double())
    assert (error <= bound + torch.finfo(torch.float32).eps * truth.abs().max()).all()
    if word == "ieee":
        assert error.max() <= 2 * eager + torch.finfo(torch.float32).eps * truth.abs().max()


def test_ieee_holds_for_what_cublas_does_faster():
    """A short K is left to PyTorch where that is exact."""
    a, b = make(256, 16), make(16, 256)
    check_like_eager(torch.mm, a, b, word="ieee", allowed="tf32", served=["mm"])
    report = check_like_eager(torch.mm, a, b, word="ieee", allowed="ieee")
    assert "served" not in outcomes(report)


@pytest.mark.parametrize("allowed", ["ieee", "tf32"])
def test_ieee_holds_for_a_long_sum(allowed):
    """The gradient of a small layer's weight, from many rows."""
    a, b = make(16384, 64).t(), make(16384, 64)
    check_like_eager(torch.mm, a, b, word="ieee", allowed=allowed, served=["mm"])


@pytest.mark.parametrize("allowed, word", AGAINST)
@pytest.mark.parametrize("kernels", ["C++", "Python"])
def test_what_cublas_computes_is_pytorchs_where_its_setting_is_the_same(allowed, word, kernels):
    """Bits and calls, with a bias or in batches too; ours, as precise as asked for, where it is
    not."""
    if kernels == "C++" and isinstance(reason := _native.load(), str):
        pytest.skip(f"no kernels in C++: {reason}")
    a, b, c = make(200, 64).t(), make(200, 48), make(48)
    batches = make(3, 200, 64).mT, make(3, 200, 48)

    def multiply():
        return torch.mm(a, b), torch.addmm(c, a, b), torch.bmm(*batches)

    with matmul_settings(word):
        eager = multiply()
    counted = count_under if kernels == "Python" else cutlass_fused.fp32_matmul
    torch.ops.cutlass_fused.force_tile("cublas")
    try:
        with matmul_settings(allowed), counted(word), torch.profiler.profile() as profile:
            results = multiply()
    finally:
        torch.ops.cutlass_fused.force_tile("")
    names = {event.name for event in profile.events()}
    for op in ("cutlass_fused::linear", "cutlass_fused::bmm"):
        assert (op in names) == (allowed != word)
    for y, expected in zip(results, eager, strict=True):
        if allowed == word:
            assert torch.equal(y, expected)
        # Far less than what TF32 and fp32 differ by.
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("shape", [(200, 64), (4, 50, 64)], ids=str)
def test_a_layer_keeps_its_precision_beside_another_word(shape):
    """Its product is PyTorch's then, which is not to come back to the switch."""
    x, layer = make(*shape), cutlass_fused.nn.Linear(64, 48, precision="ieee", device="cuda")
    x.requires_grad_()
    torch.ops.cutlass_fused.force_tile("cublas")
    try:
        expected = torch.nn.functional.linear(x, layer.weight, layer.bias)
        gradients = torch.autograd.grad(expected.sum(), [x, *layer.parameters()])
        with matmul_settings("ieee"), cutlass_fused.fp32_matmul("tf32"):
            y = layer(x)
            assert torch.equal(y, expected)
            for ours, theirs in zip(
                torch.autograd.grad(y.sum(), [x, *layer.parameters()]), gradients, strict=True
            ):
                assert torch.equal(ours, theirs)
    finally:
        torch.ops.cutlass_fused.force_tile("")


@pytest.mark.parametrize("allowed", ["ieee", "tf32"])
def test_ieee_holds_for_batches(allowed):
    operands = make(5, 65, 130), make(5, 130, 67)
    check_like_eager(torch.bmm, *operands, word="ieee", allowed=allowed)
    check_like_eager(torch.baddbmm, make(5, 65, 67), *operands, word="ieee", allowed=allowed)


@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, 1), (1, -2), (0, 1)])
@pytest.mark.parametrize("shape", [(264,), (1, 264), (133, 264), (133, 1), ()])
def test_addmm(shape, beta, alpha):
    def addmm(c, a, b):
        return torch.addmm(c, a, b, beta=beta, alpha=alpha)

    operands = make(*shape), make(133, 96), make(96, 264)
    check_like_eager(addmm, *operands, served=["addmm"], allowed="tf32")


@pytest.mark.parametrize("use_gelu", [False, True])
def test_addmm_activation(use_gelu):
    def activation(c, a, b):
        z = torch.addmm(c, a, b)
        if z.dtype == torch.float64:  # not of the op itself: PyTorch's gelu is that of tanh here
            return torch.nn.functional.gelu(z, approximate="tanh") if use_gelu else z.relu()
        return torch._addmm_activation(c, a, b, use_gelu=use_gelu)

    check_like_eager(activation, make(264), make(133, 96), make(96, 264), allowed="tf32")


def test_kernels_in_cpp_serve_what_is_plain():
    """Where they are built: by the op, without a look at the kernels in Python."""
    if isinstance(reason := _native.load(), str):
        pytest.skip(f"no kernels in C++: {reason}")
    a, b, c = make(133, 96), make(96, 264), make(264)
    with cutlass_fused.fp32_matmul("ieee"), torch.profiler.profile() as profile:
        y = torch.addmm(c, a, b)
    assert torch.equal(y, torch.ops.cutlass_fused.linear(a, b.t(), c, "ieee"))
    names = [event.name for event in profile.events()]
    # A kernel in Python transposes b by an op of PyTorch.
    assert "cutlass_fused::linear" in names and "aten::t" not in names


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_have_pytorchs_bits(dtype):
    a, b = make(133, 96).to(dtype), make(96, 264).to(dtype)
    with count_under() as report:
        y = a @ b
    assert torch.equal(y, a @ b) and outcomes(report) == {"not float32"}


def test_off_has_pytorchs_bits():
    a, b = make(133, 96), make(96, 264)
    before = a @ b
    with cutlass_fused.fp32_matmul("ieee"):
        a @ b
    assert torch.equal(a @ b, before)


def test_a_fresh_thread():
    """Its first product, on a stream of its own."""
    a, b = make(133, 96), make(96, 264)
    torch.cuda.synchronize()
    results = []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            results.append(a @ b)
        torch.cuda.synchronize()

    with count_under() as report:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert outcomes(report) == {"served"}
    assert torch.equal(results[0], torch.ops.cutlass_fused.linear(a, b.t(), None, "ieee"))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second GPU")
def test_another_device_than_the_current_one():
    a, b = torch.randn(133, 96, device="cuda:1"), torch.randn(96, 264, device="cuda:1")
    check_like_eager(torch.mm, a, b, served=["mm"])


def test_operands_on_two_devices_are_pytorchs_to_refuse():
    for switched in (count_under(), cutlass_fused.fp32_matmul("ieee")):
        with switched, pytest.raises(RuntimeError, match="Expected all tensors to be on the same"):
            make(64, 64) @ torch.randn(64, 64)
