"""fp32 products by cuBLAS, called without PyTorch's dispatcher: their precision is the one that was
asked for, and PyTorch's own products stay as they were."""

import itertools
import threading

import pytest
import torch
from accuracy import Judge, matmul_settings
from blas_handle import Handle
from calls import BATCH_NORM, LEAKY, LINEAR
from cases import IEEE, TF32, Shape, make_call, make_special_call
from check_call import check_call, run_poisoned
from layouts import (
    MAJORS,
    cut_block,
    lay,
    misalign_rows,
    name_majors,
    offset_storage,
    transpose,
    widen_rows,
)
from logged import run_logged
from tiles import force_tile

from cutlass_fused import find_engine, functional

pytestmark = pytest.mark.gpu
ops = torch.ops.cutlass_fused

SHAPES = (
    Shape(1, 1, 1, "one number"),
    Shape(64, 128, 16, "a short K"),
    Shape(37, 77, 51, "odd sizes: no line but the first is aligned"),
    Shape(1, 264, 256, "one row"),
    Shape(2, 264, 256, "hardly more than a row"),
    Shape(40, 1, 64, "one column"),
    Shape(133, 264, 96, "ragged"),
    Shape(48, 80, 4096, "a long K, which cuBLAS splits"),
    Shape(20011, 132, 24, "many rows of each thread of an epilogue behind, in fours"),
    Shape(3001, 131, 24, "rows of an epilogue behind that begin anywhere"),
)
FP32 = (IEEE, TF32)


# ---- results ----


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
@pytest.mark.parametrize("op", [LINEAR, LEAKY, BATCH_NORM])
def test_every_order(device, op, majors, shape):
    """In memory that held NaN, with the epilogue behind the product and in its place."""
    for numerics in FP32:
        call = lay(make_call(op, shape, numerics, device), majors)
        with force_tile("cublas"):
            check_call(call)
            assert torch.equal(call.run(), call.run())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
def test_nothing_behind_it(device, majors, shape):
    if shape.m == 1 < shape.n and majors[1]:
        pytest.xfail("PyTorch's product of such a row errs more than its product along K")
    for numerics in FP32:
        call = lay(make_call(LINEAR, shape, numerics, device, bias="none"), majors)
        with force_tile("cublas"):
            Judge(call).check(run_poisoned(call))


@pytest.mark.parametrize(
    "layout", [widen_rows, misalign_rows, offset_storage, cut_block], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
def test_strided_lines(device, majors, layout):
    """In either order, among NaN."""
    call = make_call(
        LINEAR, Shape(70, 134, 66, "lines that are not of whole 16 bytes"), IEEE, device
    )
    x, weight = (
        layout(matrix.t().contiguous()).t() if along_mn else layout(matrix)
        for matrix, along_mn in zip((call.x, call.weight), majors, strict=True)
    )
    with force_tile("cublas"):
        check_call(call.change(x=x, weight=weight))


@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
def test_special_values(device, majors):
    for op, numerics in itertools.product((LINEAR, LEAKY), FP32):
        call = lay(make_special_call(op, numerics, device), majors)
        with force_tile("cublas"):
            Judge(call).check(run_poisoned(call))


def test_the_epilogue_takes_no_memory(device):
    call = make_call(
        LEAKY, Shape(512, 512, 64, "as large as what a scratch would take"), IEEE, device
    )
    with force_tile("cublas"):
        call.run()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        y = call.run()
    assert torch.cuda.max_memory_allocated() - before == y.numel() * 4


# ---- precision ----


def find_errors(x, weight, run):
    truth = x.double() @ weight.double().t()
    return float((run(x, weight).double() - truth).norm() / truth.norm())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("majors", MAJORS, ids=name_majors)
@pytest.mark.parametrize("setting", ["ieee", "tf32"])
def test_precision_is_that_which_was_asked_for(device, setting, majors, bias):
    """Whatever PyTorch's setting says."""
    call = make_call(LINEAR, Shape(512, 1024, 2048, "TF32 has kernels"), IEEE, device)
    x, weight = (torch.randn_like(matrix) for matrix in (call.x, call.weight))
    x, weight = (transpose(m) if mn else m for m, mn in zip((x, weight), majors, strict=True))
    zero = torch.zeros(1024, device=device) if bias else None

    def by_pytorch(x, weight):
        return x @ weight.t()

    errors = {}
    for word in ("ieee", "tf32"):
        with matmul_settings(word):
            errors[word] = find_errors(x, weight, by_pytorch)
    assert errors["tf32"] > 20 * errors["ieee"]
    with matmul_settings(setting), force_tile("cublas"):
        ieee, tf32 = (
            find_errors(x, weight, lambda x, w, word=word: ops.linear(x, w, zero, word))
            for word in ("ieee", "tf32")
        )
    assert ieee < 2 * errors["ieee"]
    assert 10 * errors["ieee"] < tf32 < 1.5 * errors["tf32"]


def test_older_setter_of_tf32(device):
    x, weight = (torch.randn(512, 2048, device=device) for _ in range(2))
    with matmul_settings("ieee"), force_tile("cublas"):
        torch.backends.cuda.matmul.allow_tf32 = True
        error = find_errors(x, weight, lambda x, w: ops.linear(x, w, None, "ieee"))
    assert error < 5e-6


def test_short_sums(device):
    """In fp32, unless the word allows TF32."""
    x, weight = torch.randn(512, 32, device=device), torch.randn(1024, 32, device=device)
    with force_tile("cublas"):
        errors = {
            word: find_errors(x, weight, lambda x, w, word=word: ops.linear(x, w, None, word))
            for word in ("ieee", "tf32")
        }
    assert errors["ieee"] < 1e-6 < 1e-5 < errors["tf32"] < 5e-4


# ---- what is left behind ----


@pytest.mark.parametrize("word", ["ieee", "tf32"])
@pytest.mark.parametrize("setting", ["ieee", "tf32"])
def test_products_of_pytorch_are_as_before(device, setting, word):
    x, weight = (torch.randn(512, 1024, device=device) for _ in range(2))
    with matmul_settings(setting):
        before = torch.mm(x, weight.t())
        with force_tile("cublas"):
            ops.linear(x, weight, None, word)
        assert torch.equal(torch.mm(x, weight.t()), before)


@pytest.mark.parametrize("word", ["ieee", "tf32"])
@pytest.mark.parametrize("setting", ["ieee", "tf32"])
def test_modes_of_the_handle_are_as_before(device, setting, word):
    default_math, tf32_math, host, gpu = 0, 3, 0, 1
    x, weight = (torch.randn(64, 64, device=device) for _ in range(2))
    with matmul_settings(setting), force_tile("cublas"):
        handle = Handle()
        expected = tf32_math if setting == "tf32" else default_math
        assert handle.get("MathMode") == expected
        for pointers in (host, gpu):
            handle.set("PointerMode_v2", pointers)
            try:
                y = ops.linear(x, weight, None, word)
                assert handle.get("PointerMode_v2") == pointers
            finally:
                handle.set("PointerMode_v2", host)
            assert handle.get("MathMode") == expected
            torch.testing.assert_close(y, x @ weight.t(), rtol=1e-2, atol=1e-1)


def test_no_product_of_pytorch_is_called(device):
    """A program may have those computed by ours. In a process without the switch, which does."""
    run_logged("""
        import torch, cutlass_fused
        ops = torch.ops.cutlass_fused
        x, weight = torch.randn(64, 256, device="cuda"), torch.randn(128, 256, device="cuda")
        calls = [(x, "ieee", 1e-5), (x, "tf32", 1e-2), (x.bfloat16(), "ieee", 2e-2)]
        expected = [a.double() @ weight.to(a.dtype).double().t() for a, *_ in calls]

        def refuse(*arguments, **options):
            raise RuntimeError("called")

        library = torch.library.Library("aten", "IMPL")
        for name in ("mm", "mm.dtype", "mm.out", "addmm", "addmm.out", "bmm", "matmul", "linear"):
            library.impl(name, refuse, "CUDA")
        ops.force_tile("cublas")
        for (a, word, limit), y in zip(calls, expected):
            own = ops.linear(a, weight.to(a.dtype), None, word)
            assert (own.double() - y).norm() < limit * y.norm()
    """)


# ---- surroundings ----


def test_on_another_stream(device):
    call = make_call(LEAKY, Shape(512, 512, 512, "any"), IEEE, device)
    judge = Judge(call)
    late = call.change(x=torch.full_like(call.x, torch.nan))
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with force_tile("cublas"), torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.x.copy_(call.x)
        result = late.run()
        late.x.fill_(torch.nan)
    stream.synchronize()
    judge.check(result)


def test_in_a_graph(device):
    for op, bias in ((LINEAR, "none"), (LINEAR, "own"), (LEAKY, "own")):
        call = make_call(op, Shape(133, 264, 96, "ragged"), IEEE, device, bias=bias)
        with force_tile("cublas"):
            expected = call.run()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = call.run()
        for _ in range(2):
            y.fill_(torch.nan)
            graph.replay()
            assert torch.equal(y, expected)


def test_in_a_fresh_thread(device):
    """Which has no handle yet."""
    call, results = make_call(LEAKY, SHAPES[-2], IEEE, device), []
    thread = threading.Thread(target=lambda: results.append(call.run()))
    with force_tile("cublas"):
        thread.start()
        thread.join()
    Judge(call).check(results[0])


# ---- when it is chosen ----

CHOICES = """
    import torch
    from cutlass_fused import functional
    from tiles import force_tile

    def draw(*shape):
        return torch.randn(*shape, device="cuda", requires_grad=True)

    x, weight, bias = draw(16, 256), draw(128, 256), draw(128)
    functional.linear(x, weight, bias).square().sum().backward()
    short, other = draw(16, 32), draw(128, 32)
    with torch.no_grad():
        functional.linear(short, other)
        functional.linear(short, other, bias)
        functional.linear(short, draw(32, 128).t(), bias)
        with force_tile("sm80"):
            functional.linear(short, other)
        for word in ("ieee", "tf32"):
            with force_tile("cublas"):
                functional.linear(x, weight, bias, precision=word)
    torch.cuda.synchronize()
"""


def test_what_is_chosen():
    """The gradient of a weight with a small batch is for CUDA cores; a few short sums along K are
    cuBLAS's, without an epilogue: with one CUDA cores have them, as they lie."""
    _, log = run_logged(CHOICES)
    chosen = [" ".join(line.split()[1:3]) for line in log]
    assert len(chosen) == 3 + 6
    assert chosen[:3].count("simt fp32") == 1  # that of the weight
    others = ["cublas fp32", "simt fp32", "simt fp32", "simt fp32"]
    assert chosen[3:] == others + ["cublas fp32", "cublas tf32"]


def test_gradients_are_those_of_eager(device):
    """With a batch of 16."""
    shapes = ((16, 130), (66, 130), (66,))
    torch.manual_seed(0)
    operands = [torch.randn(shape, device=device) for shape in shapes]
    grads = []
    for dtype, function in (
        (torch.float64, torch.nn.functional.linear),
        (torch.float32, torch.nn.functional.linear),
        (torch.float32, functional.linear),
    ):
        own = [operand.to(dtype).requires_grad_() for operand in operands]
        grads.append(torch.autograd.grad(function(*own).square().mean(), own))
    for truth, eager, ours in zip(*grads, strict=True):
        limit = 2 * (eager - truth).abs().max() + truth.abs().max() * 2.0**-23
        assert (ours - truth).abs().max() <= limit


def test_find_engine(device):
    """It says what multiplies in front of an epilogue."""
    x, weight = torch.empty(64, 16, device=device), torch.empty(128, 16, device=device)
    assert find_engine(x, weight, "ieee") == "simt"


@torch.no_grad()
def test_refusals(device):
    """Where the weight is gone, and where there is nothing to add up."""
    refused = "linear: the forced tile must be one that"
    call = make_call(LINEAR, Shape(70, 72, 200, "any"), IEEE, device)
    split = ops.split_weight(call.weight, "ieee")
    gone = torch.empty((), device=device).expand(call.weight.shape)
    empty = make_call(LINEAR, Shape(40, 72, 0, "no K"), IEEE, device)
    with force_tile("cublas"):
        with pytest.raises(RuntimeError, match=refused):
            ops.linear(call.x, gone, call.bias, "ieee", None, split)
        with pytest.raises(RuntimeError, match=refused):
            empty.run()
        kept = ops.linear(call.x, call.weight, call.bias, "ieee", None, split)
        assert torch.equal(call.run(), kept)
