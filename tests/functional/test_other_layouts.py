"""Tensors that are not dense: what the plain modules compute of them, or one sentence."""

import pytest
import torch
from norm_functions import FUNCTIONS, FUSED
from plain import run_parts

from cutlass_fused import functional, nn
from cutlass_fused.weights.splits import can_be_kept

IN, OUT = 12, 20
FUSED_MODULES = {
    "LinearScaleLeakyReLU": lambda: nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1),
    "LinearScaleBatchNorm1d": lambda: nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,)),
    "LinearBatchNorm1dScaleSoftmax": lambda: nn.LinearBatchNorm1dScaleSoftmax(IN, OUT),
}
each_fused = pytest.mark.parametrize("make", FUSED_MODULES.values(), ids=FUSED_MODULES)
in_train_and_eval = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
with_and_without_grad = pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
SPARSE = {
    "coo": torch.Tensor.to_sparse,
    "csr": torch.Tensor.to_sparse_csr,
}
each_sparse = pytest.mark.parametrize("convert", SPARSE.values(), ids=SPARSE)


def make_sparse(convert):
    return convert(torch.randn(6, IN).relu())


def make_jagged(**options):
    parts = [torch.randn(rows, IN) for rows in (3, 1, 2)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, **options)


OTHERS = {
    "coo": lambda: make_sparse(torch.Tensor.to_sparse),
    "csr": lambda: make_sparse(torch.Tensor.to_sparse_csr),
    "mkldnn": lambda: torch.randn(6, IN).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.randn(6, IN), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.randn(3, IN), torch.randn(2, IN)]),
    "jagged": make_jagged,
}
FOUND = {
    "coo": "one of layout torch.sparse_coo",
    "csr": "one of layout torch.sparse_csr",
    "mkldnn": "one of layout torch._mkldnn",
    "quantized": "a quantized one of qint8",
    "nested": "a nested one of layout torch.strided",
    "jagged": "a nested one of layout torch.jagged",
}


def differentiate(y, leaves, weights):
    return (y, *torch.autograd.grad(y, leaves, weights.expand(y.shape), allow_unused=True))


def close(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


# ---- sparse ----


@each_sparse
@in_train_and_eval
@each_fused
def test_sparse_inputs_of_modules(make, training, convert):
    # In float64, since some gradients in training are 0 but for roundings.
    module, plain = make().double().train(training), make().double().train(training)
    plain.load_state_dict(module.state_dict())
    x, weights = make_sparse(convert).double(), torch.randn(OUT, dtype=torch.float64)
    ours = differentiate(module(x), list(module.parameters()), weights)
    expected = differentiate(run_parts(plain, x), list(plain.parameters()), weights)
    close(ours, expected)
    close(module.state_dict(), plain.state_dict())
    with torch.no_grad():
        close(module.eval()(x), run_parts(plain.eval(), x))


@each_sparse
@with_and_without_grad
def test_sparse_input_of_linear(convert, grad):
    module, x = nn.Linear(IN, OUT), make_sparse(convert)
    expected = torch.nn.functional.linear(x, module.weight, module.bias)
    with torch.set_grad_enabled(grad):
        y = module(x)
    close(y.detach(), expected.detach())
    assert y.layout is torch.strided and y.requires_grad == grad
    if grad:
        weights, leaves = torch.randn(OUT), list(module.parameters())
        close(differentiate(y, leaves, weights), differentiate(expected, leaves, weights))


@in_train_and_eval
@each_fused
def test_dtypes_of_sparse_inputs_under_autocast(make, training):
    # PyTorch multiplies no others in bf16 on a CPU.
    module, x = make().train(training), make_sparse(torch.Tensor.to_sparse)
    with torch.autocast("cpu", torch.bfloat16):
        assert functional.linear(x, module.gemm.weight).dtype == torch.bfloat16
        assert module(x).dtype == run_parts(module, x).dtype


def test_options_beside_a_sparse_input():
    x, weight = make_sparse(torch.Tensor.to_sparse).bfloat16(), torch.randn(OUT, IN).bfloat16()
    scale, mean, var = torch.ones(OUT), torch.zeros(OUT), torch.ones(OUT)
    for out_dtype in (None, torch.float32):
        options = {"out_dtype": out_dtype}
        assert functional.linear(x, weight, **options).dtype == (out_dtype or torch.bfloat16)
        y = functional.linear_scale_leaky_relu(x, weight, None, scale, 0.1, **options)
        assert y.dtype == torch.float32
        y = functional.linear_scale_batch_norm(x, weight, None, scale, mean, var, **options)
        assert y.dtype == torch.float32
        y = functional.linear_scale_batch_norm(x, weight, None, None, mean, var, **options)
        assert y.dtype == (out_dtype or torch.bfloat16)
    with pytest.raises(ValueError, match="^linear: precision must be"):
        functional.linear(x, weight, precision="fp8")
    with pytest.raises(RuntimeError, match="^linear: out_dtype must be"):
        functional.linear(x, weight, out_dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"^linear_scale_batch_norm: x must have 3 columns"):
        functional.linear_scale_batch_norm(x, weight[:, :3], None, None, mean, var)


# ---- nested ----


def test_jagged_input_of_linear():
    module, x = nn.Linear(IN, OUT), make_jagged(requires_grad=True)
    leaves, results = [x, *module.parameters()], []
    for y in (module(x), torch.nn.functional.linear(x, module.weight, module.bias)):
        y = torch.relu(y)
        grads = torch.autograd.grad(y.values().square().sum(), leaves)
        results.append((y.values(), grads[0].values(), *grads[1:]))
        assert y.shape[:2] == x.shape[:2]  # so that they may be added
    close(*results)
    with torch.no_grad():
        close(module(x).values(), module(x.values()))


def test_jagged_input_of_leaky_relu():
    """PyTorch has no LeakyReLU of a jagged tensor."""
    module, x = FUSED_MODULES["LinearScaleLeakyReLU"](), make_jagged()
    y = module(x)
    assert y.shape[:2] == x.shape[:2]
    close(y.values(), module(x.values()))


def test_jagged_input_of_softmax():
    module, x = nn.Softmax(-1), make_jagged(requires_grad=True)
    for dim in (-1, 2):
        module.dim = dim
        y, expected = module(x), torch.softmax(x, -1)
        close(y.values(), expected.values())
        weights = torch.randn(IN)
        ours, other = (torch.autograd.grad((r.values() * weights).sum(), x) for r in (y, expected))
        close(ours[0].values(), other[0].values())


def test_jagged_input_compiled():
    module, x = nn.Linear(IN, OUT), make_jagged()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        close(compiled(x).values(), module(x).values())
    torch._dynamo.reset()


# ---- what is refused ----


def refuse(op, name, kind, run):
    with pytest.raises(RuntimeError) as error:
        run()
    assert str(error.value) == f"{op}: {name} must be a dense tensor, got {FOUND[kind]}"


@pytest.mark.parametrize("kind", ["mkldnn", "quantized", "nested"])
@with_and_without_grad
def test_inputs_that_no_product_takes(kind, grad):
    weight = torch.randn(OUT, IN, requires_grad=grad)
    for function in (functional.linear, functional.linear_scale_leaky_relu):
        refuse(function.__name__, "x", kind, lambda f=function: f(OTHERS[kind](), weight))


@pytest.mark.parametrize("kind", ["mkldnn", "nested", "jagged"])
@in_train_and_eval
@with_and_without_grad
@pytest.mark.parametrize("function", FUSED, ids=str)
def test_inputs_that_no_product_in_front_of_a_batch_norm_takes(function, kind, training, grad):
    weight = torch.randn(OUT, IN, requires_grad=grad)
    statistics = torch.zeros(OUT), torch.ones(OUT)
    before = [t.clone() for t in statistics]
    x = OTHERS[kind]()
    refuse(
        str(function),
        "x",
        kind,
        lambda: function.ours(x, weight, None, None, *statistics, training=training),
    )
    assert all(map(torch.equal, statistics, before))


def test_jagged_inputs_with_holes():
    """Rows that lie between those of the parts belong to none."""
    rows, offsets = torch.randn(10, IN), torch.tensor([0, 4, 7, 10])
    x = torch.nested.nested_tensor_from_jagged(rows, offsets, torch.tensor([2, 3, 1]))
    weight = torch.randn(OUT, IN)
    for y, expected in (
        (functional.softmax(x), rows.softmax(1)),
        (functional.linear(x, weight), rows @ weight.T),
        (functional.linear_scale_leaky_relu(x, weight, None, 1.0, 1.0), rows @ weight.T),
    ):
        parts = [expected[0:2], expected[4:7], expected[7:8]]
        for ours, part in zip(y.unbind(), parts, strict=True):
            close(ours, part)


@pytest.mark.parametrize("kind", OTHERS)
@with_and_without_grad
def test_inputs_of_softmax(kind, grad):
    x = OTHERS[kind]()
    if kind == "jagged":
        x = x.transpose(1, 2)  # whose last dimension is the one of many lengths
    elif kind != "quantized":  # which has no gradients
        x.requires_grad_(grad)
    refuse("softmax", "x", kind, lambda: functional.softmax(x))


@pytest.mark.parametrize("kind", OTHERS)
@in_train_and_eval
def test_inputs_of_batch_norm(kind, training):
    x, statistics = OTHERS[kind](), (torch.zeros(IN), torch.ones(IN))
    refuse(
        "batch_norm",
        "x",
        kind,
        lambda: functional.batch_norm(x, *statistics, training=training),
    )
    assert torch.equal(statistics[0], torch.zeros(IN))


@pytest.mark.parametrize("kind", ["coo", "csr", "mkldnn"])
@with_and_without_grad
def test_weights(kind, grad):
    """A layer that was pruned and made sparse has such a weight: PyTorch's own serves it."""
    x, weight = torch.randn(4, IN, requires_grad=grad), OTHERS[kind]()
    assert not can_be_kept(weight)  # which a GPU asks first
    refuse("linear", "weight", kind, lambda: functional.linear(x, weight))
    refuse(
        "linear_scale_batch_norm",
        "weight",
        kind,
        lambda: functional.linear_scale_batch_norm(x, weight, None, 2.0, None, None, training=True),
    )


# x of other ranks and dtypes goes to PyTorch's own batch norm, which counts first.
@pytest.mark.parametrize("kind", ["mkldnn", "quantized"])
@pytest.mark.parametrize("make", list(FUSED_MODULES.values())[1:], ids=list(FUSED_MODULES)[1:])
def test_a_module_that_refuses_has_counted_nothing(make, kind):
    module = make()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(RuntimeError, match="^linear_.*: x must be a dense tensor"):
        with torch.no_grad():
            module(OTHERS[kind]())
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


# ---- dtypes and names ----

DTYPES = {
    "complex64": torch.complex64,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "int64": torch.int64,
    "bool": torch.bool,
}


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@in_train_and_eval
@each_fused
def test_dtypes_of_x(make, training, dtype):
    """Also beside a scale of one, or of N elements, with which the dtype is promoted."""
    module = make().train(training)
    found = f"x must be float16, bfloat16, float32 or float64, got {str(dtype)[6:]}"
    for grad in (False, True):
        with torch.set_grad_enabled(grad), pytest.raises(RuntimeError) as error:
            module(torch.randn(6, IN).to(dtype))
        assert str(error.value).endswith(f": {found}")


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_names_of_dimensions(function):
    """PyTorch itself says that no op of a library takes them, and what to do."""
    x = torch.randn(6, IN).refine_names("N", "C")
    vectors = (torch.zeros(IN), torch.ones(IN))
    arguments = (torch.randn(IN, IN), None, None) if function.has_product else ()
    with pytest.raises(RuntimeError, match="Named tensors are .* drop names via"):
        function.ours(x, *arguments, *vectors)
    for run in (functional.linear, functional.linear_scale_leaky_relu):
        with pytest.raises(RuntimeError, match="Named tensors are .* drop names via"):
            run(x, torch.randn(OUT, IN))
    with pytest.raises(RuntimeError, match="Named tensors are .* drop names via"):
        functional.softmax(x)
