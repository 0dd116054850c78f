"""Scales of every shape and dtype that the plain expression takes, and numbers of every kind."""

import copy

import numpy as np
import pytest
import torch
from norm_functions import FUSED, call
from plain import run_plain
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from cutlass_fused import functional, nn

pytestmark = pytest.mark.usefixtures("language")

M, N, K = 5, 4, 3
SHAPES = {"(1, N)": (1, N), "(1, 1)": (1, 1), "(M, 1)": (M, 1), "(M, N)": (M, N)}
in_all_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def draw(dtype):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(M, K), torch.randn(N, K), torch.randn(N)
    return [tensor.to(dtype) for tensor in (x, weight, bias)]


def run_both(function, matrices, scale, training):
    """The results of ours and of the plain expression."""
    if function is None:
        yield functional.linear_scale_leaky_relu(*matrices, scale, 0.1)
        yield run_plain(*matrices, scale, 0.1)
        return
    generator = torch.Generator().manual_seed(1)
    vectors = {name: torch.rand(N, generator=generator) + 0.5 for name in ("gamma", "beta")}
    leaves = dict(zip(("x", "weight", "bias"), matrices, strict=True)) | {"scale": scale}
    for run in (function.ours, function.plain):
        yield call(run, leaves | vectors, (torch.zeros(N), torch.ones(N)), training)


CASES = [(None, False), *((function, training) for function in FUSED for training in (False, True))]
each_case = pytest.mark.parametrize(
    ("function", "training"), CASES, ids=[f"{f or 'leaky_relu'}-{t}" for f, t in CASES]
)


def compare(function, training, matrices, scale):
    matrices = [matrix.clone().requires_grad_() for matrix in matrices]
    leaves = [*matrices, *([scale] if scale.requires_grad else [])]
    results = []
    for y in run_both(function, matrices, scale, training):
        weights = torch.rand(y.shape, generator=torch.Generator().manual_seed(2))
        grads = torch.autograd.grad(y, leaves, weights.to(y.dtype), allow_unused=True)
        results.append((y, *grads))
    narrow = matrices[0].dtype != torch.float32
    limits = {"rtol": 0.05, "atol": 0.1} if narrow else {"rtol": 1e-4, "atol": 1e-5}
    # In training the bias has no gradient but roundings.
    ours, plain = ([g for i, g in enumerate(r) if i != 3] for r in results)
    torch.testing.assert_close(ours, plain, **limits, check_dtype=not narrow)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@in_all_dtypes
@each_case
def test_shapes(function, training, dtype, shape):
    scale = (torch.rand(shape) + 0.5).to(dtype).requires_grad_()
    compare(function, training, draw(dtype), scale)


@pytest.mark.parametrize("scale_dtype", [torch.int64, torch.int8, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (N,), (M, 1)], ids=str)
@in_all_dtypes
@each_case
def test_dtypes(function, training, dtype, shape, scale_dtype):
    compare(function, training, draw(dtype), torch.randint(1, 4, shape).to(scale_dtype))


def test_other_shapes_are_refused():
    for shape in ((N + 1,), (M + 1, 1), (M, N, 1), (2, N)):
        with pytest.raises(RuntimeError, match="scale must have one element or shape"):
            functional.linear_scale_leaky_relu(*draw(torch.float32), torch.ones(shape))


@pytest.mark.parametrize("kind", ["LinearScaleBatchNorm1d", "LinearBatchNorm1dScaleSoftmax"])
def test_scales_of_rows_compile_in_training(kind):
    torch._dynamo.reset()
    module, x = getattr(nn, kind)(K, N, scale_shape=(N,)), torch.randn(M, K)
    module.scale = torch.nn.Parameter(torch.rand(M, 1) + 0.5)
    compiled = torch.compile(copy.deepcopy(module), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), module(x))
    torch.testing.assert_close(compiled.bn.running_var, module.bn.running_var)
    torch._dynamo.reset()


@pytest.mark.parametrize("function", FUSED, ids=str)
def test_a_batch_of_one(function):
    """Also where the parts run one by one, in the name of what was called."""
    x, weight, bias = draw(torch.float32)
    mean, var = torch.zeros(N), torch.ones(N)
    for row, scale in ((x[:1], torch.ones(1, N)), (x[:1].to_sparse(), 2.0)):
        with pytest.raises(ValueError, match=f"^{function}: Expected more than 1 value"):
            function.ours(row, weight, bias, scale, mean, var, training=True)
    assert torch.equal(mean, torch.zeros(N))


@pytest.mark.parametrize("shape", [(N,), (M, 1)], ids=str)
@each_case
def test_dtypes_of_results(function, training, shape):
    """Those that any other scale has, also where PyTorch multiplies by this one."""
    matrices, scale = draw(torch.bfloat16), torch.ones(shape, dtype=torch.bfloat16)
    ours, statistics = functional.linear_scale_leaky_relu, {}
    if function is not None:
        ours = function.ours
        statistics = {"running_mean": torch.zeros(N), "running_var": torch.ones(N)}
        statistics["training"] = training
    for dtype in (None, torch.bfloat16, torch.float32):
        y = ours(*matrices, scale, **statistics, out_dtype=dtype)
        assert y.dtype == (dtype or torch.bfloat16)
    before = {name: torch.as_tensor(value).clone() for name, value in statistics.items()}
    for dtype in (torch.float64, torch.float16, torch.int32):
        message = f"^{ours.__name__}: out_dtype must be bfloat16 .*, got {str(dtype)[6:]}"
        with pytest.raises(RuntimeError, match=message):
            ours(*matrices, scale, **statistics, out_dtype=dtype)
    for name, value in statistics.items():
        assert torch.equal(torch.as_tensor(value), before[name])


MIXED = [
    (torch.float32, torch.float64),
    (torch.bfloat16, torch.float64),
    (torch.bfloat16, torch.float16),
]


@pytest.mark.parametrize(("dtype", "of_scale"), MIXED, ids=str)
@each_case
def test_scales_without_a_dimension(function, training, dtype, of_scale):
    """Such a tensor counts as a number, whatever its dtype."""
    scale = (torch.rand(()) + 0.5).to(of_scale).requires_grad_()
    compare(function, training, draw(dtype), scale)
    if function is None:
        y = functional.linear_scale_leaky_relu(*draw(dtype), scale, 0.1)
        assert y.dtype == run_plain(*draw(dtype), scale, 0.1).dtype


NUMBERS = {
    "float32": np.float32(0.5),
    "float64": np.float64(0.5),
    "float16": np.float16(0.5),
    "tensor": torch.tensor(0.5),
}


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
def test_numbers(number):
    x, weight, bias = draw(torch.float32)
    expected = functional.linear_scale_leaky_relu(x, weight, bias, 0.5, 0.5)
    ours = functional.linear_scale_leaky_relu(x, weight, bias, number, number)
    torch.testing.assert_close(ours, expected)
    module = nn.LinearScaleLeakyReLU(K, N, number, number)
    assert (module.multiplier, module.negative_slope) == (0.5, 0.5)
    for function in FUSED:
        statistics = [(torch.zeros(N), torch.ones(N)) for _ in range(2)]
        results = [
            function.ours(x, weight, bias, value, *moved, training=True, momentum=value, eps=value)
            for value, moved in zip((0.5, number), statistics, strict=True)
        ]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*statistics)


@pytest.mark.parametrize("scale", [1e300, -1e300, float("inf"), 10**40])
def test_numbers_beyond_fp32(scale):
    matrices = draw(torch.float32)
    expected = run_plain(*matrices, torch.tensor(float(scale)), 0.1)
    assert torch.equal(functional.linear_scale_leaky_relu(*matrices, scale, 0.1), expected)
    assert (
        functional.linear_scale_batch_norm(*matrices, scale, torch.zeros(N), torch.ones(N))
        .isinf()
        .all()
    )


class RecordCopies(TorchDispatchMode):
    """What copies between devices are told."""

    def __init__(self):
        super().__init__()
        self.options = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op is torch.ops.aten._to_copy.default and "device" in kwargs:
            self.options.append(kwargs)
        return op(*args, **(kwargs or {}))


@each_case
def test_a_scale_on_the_host(function, training):
    """A scale of no dimension may lie there beside matrices on a GPU, as in PyTorch's own products.
    The host waits for no kernel."""
    with FakeTensorMode(), RecordCopies() as copies:
        matrices = [torch.randn(size, device="cuda") for size in ((M, K), (N, K), (N,))]
        scale = torch.tensor(2.0, requires_grad=True)
        if function is None:
            y = functional.linear_scale_leaky_relu(*matrices, scale, 0.1)
        else:
            leaves = dict(zip(("x", "weight", "bias"), matrices, strict=True)) | {"scale": scale}
            vectors = [torch.ones(N, device="cuda") for _ in range(4)]
            norm = dict(zip(("gamma", "beta"), vectors, strict=False))
            y = call(function.ours, leaves | norm, vectors[2:], training)
        assert y.is_cuda and y.requires_grad
    assert copies.options and all(options["non_blocking"] for options in copies.options)
