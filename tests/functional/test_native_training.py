"""Functions with a batch norm in training, with gradients in C++: that they are those of Python."""

import itertools

import pytest
import torch

from cutlass_fused import functional
from cutlass_fused.functional._derived import native
from cutlass_fused.matmul import _native

pytestmark = pytest.mark.skipif(
    isinstance(_native.load(), str), reason=f"gradients are in Python: {_native.load()}"
)

M, N, K = 9, 6, 5
FUNCTIONS = {
    "scale_batch_norm": functional.linear_scale_batch_norm,
    "softmax": functional.linear_batch_norm_scale_softmax,
}
each_function = pytest.mark.parametrize("name", FUNCTIONS)
LEAVES = ("x", "weight", "bias", "scale", "gamma", "beta")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# What is there beside x and weight, and the shape of scale.
GIVEN = [
    dict(zip(("bias", "scale", "affine", "tracked"), kinds, strict=True))
    for kinds in itertools.product((True, False), ((N,), (1,), (), None), *[(True, False)] * 2)
]


def name_given(given):
    return ", ".join(f"{name} {kind}" for name, kind in given.items())


def make(dtype=torch.float64, bias=True, scale=(N,), affine=True, tracked=True):
    torch.manual_seed(0)
    leaves = {"x": torch.randn(M, K), "weight": torch.randn(N, K)}
    leaves["bias"] = torch.randn(N) if bias else None
    leaves["scale"] = None if scale is None else torch.rand(scale) + 0.5
    leaves["gamma"], leaves["beta"] = (torch.rand(2, N) + 0.5) if affine else (None, None)
    leaves = {
        name: None if leaf is None else leaf.to(dtype).requires_grad_()
        for name, leaf in leaves.items()
    }
    statistics = (None, None, None)
    if tracked:
        wide = torch.promote_types(dtype, torch.float32)
        statistics = torch.zeros(N, dtype=wide), torch.ones(N, dtype=wide), torch.tensor(0)
    return leaves, statistics


def run(name, leaves, statistics, **options):
    mean, var, count = statistics
    return FUNCTIONS[name](
        *(leaves[leaf] for leaf in LEAVES[:4]),
        mean,
        var,
        leaves["gamma"],
        leaves["beta"],
        training=True,
        num_batches_tracked=count,
        **options,
    )


def is_native(y):
    return type(y.grad_fn).__name__ == "CppFunction"


def take_gradients(name, dtype, given, **options):
    """y, the gradients of all leaves that are there, and the statistics."""
    leaves, statistics = make(dtype, **given)
    y = run(name, leaves, statistics, **options)
    asked = [leaf for leaf in leaves.values() if leaf is not None]
    torch.manual_seed(1)
    grads = torch.autograd.grad(y, asked, torch.randn_like(y))
    return is_native(y), [y, *grads, *(each for each in statistics if each is not None)]


@pytest.mark.parametrize("given", GIVEN, ids=name_given)
@pytest.mark.parametrize("dtype", DTYPES)
@each_function
def test_results_are_those_in_python(name, dtype, given, monkeypatch):
    is_ours, results = take_gradients(name, dtype, given)
    assert is_ours
    monkeypatch.setattr(native, "is_served", lambda *_: False)
    is_ours, expected = take_gradients(name, dtype, given)
    assert not is_ours
    for mine, theirs in zip(results, expected, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("options", [{"momentum": None}, {"out_dtype": torch.float32}], ids=str)
@each_function
def test_options(name, options, monkeypatch):
    is_ours, results = take_gradients(name, torch.bfloat16, {}, **options)
    monkeypatch.setattr(native, "is_served", lambda *_: False)
    _, expected = take_gradients(name, torch.bfloat16, {}, **options)
    assert is_ours
    torch.testing.assert_close(results, expected)


@each_function
def test_only_what_is_asked_for_is_multiplied(name):
    leaves, statistics = make()
    y = run(name, leaves, statistics)
    asked = {"x": 1, "weight": 1, "scale": 0, "gamma": 0, "beta": 0, "bias": 0}
    if name == "scale_batch_norm":
        asked["scale"] = 1  # the sums of the weight's
    for leaf, products in asked.items():
        with torch.profiler.profile() as profile:
            torch.autograd.grad(y.square().sum(), leaves[leaf], retain_graph=True)
        names = [event.name for event in profile.events()]
        assert names.count("aten::mm") == products, leaf


@each_function
def test_statistics_are_moved_once_and_counted(name):
    leaves, (mean, var, count) = make()
    versions = [each._version for each in (mean, var, count)]
    y = run(name, leaves, (mean, var, count))
    assert count == 1
    once = mean.clone(), var.clone()
    for _ in range(2):
        torch.autograd.grad(y.square().sum(), leaves["x"], retain_graph=True)
    assert count == 1 and torch.equal(mean, once[0]) and torch.equal(var, once[1])
    moved = [each._version for each in (mean, var, count)]
    assert all(now > before for now, before in zip(moved, versions, strict=True))


@each_function
def test_what_is_left_to_python(name):
    def is_served(change, **given):
        leaves, statistics = make(**given)
        return is_native(run(name, change(leaves), statistics))

    assert is_served(lambda leaves: leaves)
    assert not is_served(lambda leaves: leaves | {"weight": leaves["weight"].detach()})

    class Other(torch.Tensor):
        pass

    assert not is_served(lambda leaves: leaves | {"gamma": leaves["gamma"].as_subclass(Other)})


@each_function
def test_a_tensor_that_cannot_be_saved_moves_nothing(name):
    leaves, statistics = make()
    with torch.inference_mode():
        leaves["scale"] = torch.ones(N, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="scale must be no tensor of torch.inference_mode"):
        run(name, leaves, statistics)
    assert statistics[2] == 0 and not statistics[0].any()


@each_function
def test_a_hook_that_raises_moves_nothing(name):
    leaves, statistics = make()

    def pack(_):
        raise ValueError("no")

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed)
    with hooks, pytest.raises(ValueError, match="no"):
        run(name, leaves, statistics)
    assert statistics[2] == 0 and not statistics[0].any()
