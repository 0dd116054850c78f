"""Second derivatives, forward mode and torch.func on the GPU: against eager in the same precision,
truth in float64. A result may err by twice what eager does."""

import pytest
import torch
from accuracy import matmul_settings
from cases import BF16, IEEE, TF32
from judge_gradients import judge_norms
from norm_functions import FUNCTIONS, FUSED, call, run_eager
from plain import run_plain
from recorded_ops import RecordOps

from cutlass_fused import functional

pytestmark = pytest.mark.gpu

M, N, K = 96, 72, 64
MODES = [(function, training) for function in FUNCTIONS for training in (True, False)]
NAMES = ["linear", "leaky_relu", "scaled leaky_relu", "softmax"]
NAMES += [f"{function} {'train' if training else 'eval'}" for function, training in MODES]
each_function = pytest.mark.parametrize("name", NAMES)


# It is luck how near a derivative comes that is a sum of many of both signs: several are judged
# together.
SEEDS = range(4)


def draw(name, numerics, device, seed):
    """The leaves by name. Those in front of a kink are integers, with a bias of a half: z is exact,
    and of the same sign in every precision."""
    generator = torch.Generator(device).manual_seed(seed)
    is_exact = "leaky_relu" in name

    def numbers(*size, exact=is_exact):
        if exact:
            drawn = torch.randint(-2, 3, size, generator=generator, device=device)
        else:
            drawn = torch.randn(size, generator=generator, device=device)
        return drawn.to(numerics.dtype)

    if name == "softmax":
        return {"x": numbers(M, N)}
    if name.startswith("batch_norm"):
        leaves = {"x": numbers(M, N)}
    else:
        weight = numbers(N, K)
        leaves = {"x": numbers(M, K), "weight": weight if is_exact else weight / K**0.5}
        leaves["bias"] = numbers(N) + 0.5
    if name in ("linear", "leaky_relu"):
        return leaves
    if not name.startswith("batch_norm"):
        leaves["scale"] = numbers(N, exact=False).abs() + 0.5
    if "leaky_relu" not in name:
        leaves |= {"gamma": numbers(N).abs() + 0.5, "beta": numbers(N)}
    return leaves


def find_runs(name, numerics, device):
    """ours(leaves) and plain(leaves); the running statistics are fresh in each call."""
    precision = {"precision": numerics.precision}
    if name == "linear":
        return (
            lambda leaves: functional.linear(**leaves, **precision),
            lambda leaves: torch.nn.functional.linear(*leaves.values()),
        )
    if name == "softmax":
        return (lambda t: functional.softmax(t["x"])), (lambda t: torch.softmax(t["x"], -1))
    if "leaky_relu" in name:
        number = {} if "scaled" in name else {"scale": 1.5}
        options = number | {"negative_slope": 0.1}
        return (
            lambda leaves: functional.linear_scale_leaky_relu(**leaves, **options, **precision),
            lambda leaves: run_plain(**leaves, **options),
        )
    function, training = MODES[NAMES.index(name) - 4]
    options = precision if function.has_product else {}

    def make_statistics(leaves):
        dtype = leaves["x"].dtype
        mean, variance = torch.linspace(-0.2, 0.2, N), torch.linspace(0.5, 1.5, N)
        return mean.to(device, dtype), variance.to(device, dtype)

    return (
        lambda leaves: call(function.ours, leaves, make_statistics(leaves), training, **options),
        lambda leaves: run_eager(function, leaves, make_statistics(leaves), training),
    )


def differentiate_twice(run, leaves, dtype):
    """The gradients of a loss that holds gradients of all leaves, and its parts."""
    leaves = {name: leaf.detach().to(dtype).requires_grad_() for name, leaf in leaves.items()}
    y = run(leaves)
    weights = torch.linspace(0.5, 1.5, y.numel(), device=y.device, dtype=y.dtype).reshape(y.shape)
    names = [name for name in leaves if name != "bias"]
    grads = torch.autograd.grad(
        (y * y * weights).sum(), [leaves[name] for name in names], create_graph=True
    )
    loss = sum((grad * grad).sum() for grad in grads)
    second = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    results = {f"first of {name}": grad.detach() for name, grad in zip(names, grads, strict=True)}
    for name, grad in zip(leaves, second, strict=True):
        # That of a bias in front of a batch norm is 0, which eager gives but for rounding errors.
        if grad is not None and name != "bias":
            results[f"second of {name}"] = grad
    return {"y": y.detach()} | results


def take_jvp(run, leaves, dtype):
    leaves = {name: leaf.detach().to(dtype) for name, leaf in leaves.items()}
    tangents = {name: leaf.flip(0) for name, leaf in leaves.items()}
    y, tangent = torch.func.jvp(run, (leaves,), (tangents,))
    return {"y": y, "tangent": tangent}


def take_hvp(run, leaves, dtype):
    """Forward over reverse, of x."""
    leaves = {name: leaf.detach().to(dtype) for name, leaf in leaves.items()}
    x = leaves["x"]

    def loss(x):
        y = run(leaves | {"x": x})
        return (y * y).sum()

    grad, product = torch.func.jvp(torch.func.grad(loss), (x,), (x.flip(0),))
    return {"gradient": grad, "product": product}


def compare(take, name, numerics, device):
    drawn = [draw(name, numerics, device, seed) for seed in SEEDS]
    run, plain = find_runs(name, numerics, device)

    def take_all(run, dtype):
        results = [take(run, leaves, dtype) for leaves in drawn]
        return {key: torch.stack([result[key] for result in results]) for key in results[0]}

    ours = take_all(run, numerics.dtype)
    with matmul_settings(numerics.precision):
        eager = take_all(plain, numerics.dtype)
    truth = take_all(plain, torch.float64)
    judge_norms(ours, eager, {key: truth[key] for key in ours})


@pytest.mark.parametrize("take", [differentiate_twice, take_jvp, take_hvp])
@each_function
def test_fp32(device, name, take):
    compare(take, name, IEEE, device)


@pytest.mark.parametrize("take", [differentiate_twice, take_jvp, take_hvp])
@each_function
def test_bf16(device, name, take):
    """They run, and give what is near: each step rounds, as eager's do, but not the same ones."""
    leaves = draw(name, BF16, device, seed=0)
    run, plain = find_runs(name, BF16, device)
    ours, truth = take(run, leaves, torch.bfloat16), take(plain, leaves, torch.float64)
    for key, mine in ours.items():
        assert mine.dtype == torch.bfloat16, key
        assert torch.isfinite(mine).all(), key
        error, size = (mine.double() - truth[key]).norm(), truth[key].norm()
        assert error <= 64 * torch.finfo(torch.bfloat16).eps * size, key


@pytest.mark.parametrize("numerics", [IEEE, TF32], ids=str)
@pytest.mark.parametrize("take", [differentiate_twice, take_jvp, take_hvp])
@pytest.mark.parametrize("name", [name for name in NAMES if name.split()[0] != "batch_norm"])
def test_all_products_have_the_precision_of_the_forward_pass(device, name, take, numerics):
    """PyTorch's setting says the opposite, and has no say."""
    if name == "softmax":
        pytest.skip("it has no product")
    run, _ = find_runs(name, numerics, device)
    leaves = draw(name, numerics, device, seed=0)
    with (
        matmul_settings("tf32" if numerics is IEEE else "ieee"),
        RecordOps() as record,
    ):
        take(run, leaves, torch.float32)
    assert not {"mm", "addmm", "bmm", "matmul"} & set(record.names)
    products = [options for op, options in record.calls if op.startswith(("linear", "bmm"))]
    assert len(products) >= 3
    assert {options.get("precision", "ieee") for options in products} == {numerics.precision}


@pytest.mark.parametrize("function", FUSED, ids=str)
def test_statistics_are_moved_once(device, function):
    name = f"{function} train"
    leaves = draw(name, IEEE, device, seed=0)
    moved = []
    for mode in ("reverse", "forward"):
        statistics = torch.zeros(N, device=device), torch.ones(N, device=device)
        count = torch.zeros((), dtype=torch.int64, device=device)

        def run(x, statistics=statistics, count=count):
            options = {"num_batches_tracked": count}
            return call(function.ours, leaves | {"x": x}, statistics, True, **options)

        x = leaves["x"].clone()
        if mode == "forward":
            torch.func.jvp(run, (x,), (x,))
        else:
            y = run(x.requires_grad_()).square().sum()
            (grad,) = torch.autograd.grad(y, x, create_graph=True)
            grad.square().sum().backward()
        assert count == 1
        moved.append(statistics)
    torch.testing.assert_close(*moved)


def test_slices_are_products_and_batches(device):
    """Gradients of each slice are products of the whole, or a batch of them: no loop."""
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(5, 16, K, generator=generator, device=device)
    weight = torch.randn(5, N, K, generator=generator, device=device)

    def differentiate(x, weight):
        def loss(x, weight):
            return functional.linear(x, weight, precision="ieee").square().sum()

        def inner(x, weight):
            return torch.func.grad(loss)(x, weight).square().sum()

        return torch.func.grad(inner, (0, 1))(x, weight)

    with RecordOps() as record:
        found = torch.func.vmap(differentiate)(x, weight)
    # PyTorch makes a loop of the forward pass alone.
    assert "bmm" in [op for op, _ in record.calls]
    exact = zip(x.double(), weight.double(), strict=True)
    expected = zip(*(_differentiate_plain(*each) for each in exact), strict=True)
    for mine, exact in zip(found, map(torch.stack, expected), strict=True):
        assert (mine.double() - exact).norm() <= 1e-5 * exact.norm()


def _differentiate_plain(x, weight):
    def inner(x, weight):
        loss = torch.func.grad(lambda x: (x @ weight.t()).square().sum())
        return loss(x).square().sum()

    return torch.func.grad(inner, (0, 1))(x, weight)
