"""Hooks of a part run: such a part is called as it is. Modules that take only what a part holds, of
which no hook would run, refuse them."""

import functools

import pytest
import torch
from parts import FUSED, IN, OUT, build
from plain import run_parts
from torch.ao.quantization import MinMaxObserver
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from cutlass_fused import nn

pytestmark = pytest.mark.usefixtures("language")


def double_result(module, arguments, result):
    return 2 * result


def double_input(module, arguments):
    return (2 * arguments[0],)


# One for each place where PyTorch keeps them.
REGISTER = {
    "forward": lambda module: module.register_forward_hook(double_result),
    "forward_pre": lambda module: module.register_forward_pre_hook(double_input),
    "backward": lambda module: module.register_full_backward_hook(lambda *arguments: None),
    "backward_pre": lambda module: module.register_full_backward_pre_hook(lambda *arguments: None),
}
each_place = pytest.mark.parametrize("register", REGISTER.values(), ids=REGISTER)
each_fused = pytest.mark.parametrize("kind", FUSED)


@each_place
def test_linear_with_a_hook(register):
    linear = torch.nn.Linear(IN, OUT)
    hook = register(linear)
    with pytest.raises(TypeError, match="^Linear: linear must have no hooks, which would not run"):
        build("Linear", linear=linear)
    hook.remove()
    build("Linear", linear=linear)


@each_place
def test_batch_norm_with_a_hook(register):
    bn = torch.nn.BatchNorm1d(OUT)
    hook = register(bn)
    with pytest.raises(TypeError, match="^BatchNorm1d: bn must have no hooks, which would not run"):
        build("BatchNorm1d", bn=bn)
    hook.remove()
    build("BatchNorm1d", bn=bn)


@each_place
def test_activations_with_a_hook(register):
    softmax, leaky_relu = torch.nn.Softmax(dim=1), torch.nn.LeakyReLU(0.1)
    register(softmax), register(leaky_relu)
    with pytest.raises(TypeError, match="softmax must have no hooks"):
        nn.Softmax.from_eager(softmax)
    with pytest.raises(TypeError, match="negative_slope must have no hooks"):
        nn.LinearScaleLeakyReLU.from_eager(torch.nn.Linear(IN, OUT), 2.0, leaky_relu)


def test_all_are_named():
    linear = torch.nn.Linear(IN, OUT)
    linear.register_forward_hook(double_result)
    linear.register_forward_hook(functools.partial(double_result))
    linear.register_forward_pre_hook(double_input)
    with pytest.raises(TypeError, match="got double_input, double_result, partial$"):
        nn.Linear.from_eager(linear)


# What people do to a Linear that prepares its weight on each call.
HOOKED_WEIGHTS = {
    "spectral_norm": spectral_norm,
    "weight_norm": weight_norm,
    "prune": lambda linear: prune.l1_unstructured(linear, "weight", 0.5),
}
each_weight = pytest.mark.parametrize("prepare", HOOKED_WEIGHTS.values(), ids=HOOKED_WEIGHTS)


def close(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@each_weight
def test_weights_that_a_hook_prepares_are_not_shared(prepare):
    with pytest.raises(TypeError, match="^Linear: linear must have no hooks"):
        build("Linear", linear=prepare(torch.nn.Linear(IN, OUT)))


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("later", [False, True])
@each_weight
@each_fused
def test_weights_that_a_hook_prepares(kind, prepare, later):
    """Before the first call or after it, by from_eager or to its part."""
    if later:
        module, x = build(kind), torch.randn(6, IN)
        module(x)
        prepare(module.gemm)
    else:
        module, x = build(kind, linear=prepare(torch.nn.Linear(IN, OUT))), torch.randn(6, IN)
    module.eval()
    close(module(x), run_parts(module, x))
    with torch.no_grad():  # what the weight is made of changes
        for name, parameter in module.gemm.named_parameters():
            parameter.mul_(0.5 if name != "bias" else 1.0)
    close(module(x), run_parts(module, x))


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("later", [False, True])
@each_weight
@each_fused
def test_compiled_with_weights_that_a_hook_prepares(kind, prepare, later):
    """Hooks that are objects, in one graph."""
    torch._dynamo.reset()  # of one forward it keeps a few graphs only, those of other tests too
    module, x = build(kind).eval(), torch.randn(6, IN)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    if later:
        compiled(x)
    prepare(module.gemm)
    close(compiled(x), run_parts(module, x))
    torch._dynamo.reset()


@pytest.mark.parametrize("place", ["backward", "backward_pre"])
@each_fused
def test_backward_hooks_are_called(kind, place):
    """Hooks of the part, and global ones."""
    calls, module, x = [], build(kind), torch.randn(6, IN, requires_grad=True)
    part = getattr(module.gemm, f"register_full_{place}_hook")
    everywhere = getattr(torch.nn.modules.module, f"register_module_full_{place}_hook")
    for register in (part, everywhere):
        calls.clear()
        with register(lambda called, *arguments: calls.append(called)):
            module(x).sum().backward()
        assert calls.count(module.gemm) == 1


@each_place
@each_fused
def test_hooks_of_parts_run(kind, register):
    module, x = build(kind), torch.randn(6, IN, requires_grad=True)
    module(x)
    for part in [module.gemm] if kind == "LinearScaleLeakyReLU" else [module.gemm, module.bn]:
        hook = register(part)
        close(module(x), run_parts(module, x))
        hook.remove()


@pytest.mark.parametrize("part", ["gemm", "bn"])
@pytest.mark.parametrize("backward", [False, True])
@each_fused
def test_hooks_are_called_once(kind, part, backward):
    if not hasattr(module := build(kind), part):
        part = "gemm"
    calls, place = [], getattr(module, part)
    if backward:
        place.register_full_backward_hook(lambda *arguments: calls.append(part))
    else:
        place.register_forward_hook(lambda *arguments: calls.append(part))
    module(torch.randn(6, IN)).sum().backward()
    assert calls == [part]


@each_fused
def test_global_hooks_see_the_parts(kind):
    seen, module = [], build(kind)
    with torch.nn.modules.module.register_module_forward_hook(
        lambda module, arguments, result: seen.append(type(module).__name__)
    ):
        module(torch.randn(6, IN))
    assert seen == ["Linear", *(["BatchNorm1d"] if hasattr(module, "bn") else []), kind]


@each_fused
def test_lazy_linear(kind):
    """It gets its sizes, and its class, by a hook of the first call."""
    module, x = build(kind), torch.randn(6, IN)
    module.gemm = torch.nn.LazyLinear(OUT)
    module(x)
    assert module.gemm.weight.shape == (OUT, IN) and type(module.gemm) is torch.nn.Linear
    close(module(x), run_parts(module, x))


@each_fused
def test_observers(kind):
    """PyTorch's quantization puts them behind a layer."""
    module, x, observer = build(kind), torch.randn(6, IN), MinMaxObserver()
    module.gemm.register_forward_hook(lambda gemm, arguments, z: observer(z))
    module(x)
    assert observer.max_val == module.gemm(x).max()


class Wrapped(torch.Tensor):
    """A tensor of another library's making, whose products are its own."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Wrapped(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func.namespace == "cutlass_fused":
            raise NotImplementedError(func)
        args = torch.utils._pytree.tree_map_only(Wrapped, lambda t: 2 * t.inner, args)
        return func(*args, **(kwargs or {}))


class Overriding(torch.Tensor):
    """One that says so in the other of PyTorch's two places."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            return 2 * result if func is torch.nn.functional.linear else result


WEIGHTS = {"dispatch": Wrapped, "function": lambda weight: weight.as_subclass(Overriding)}
each_making = pytest.mark.parametrize("make", WEIGHTS.values(), ids=WEIGHTS)


@each_making
@each_fused
def test_weights_of_another_making(kind, make):
    module, x = build(kind).eval(), torch.randn(6, IN)
    module.gemm._parameters["weight"] = make(module.gemm.weight.detach())
    with torch.no_grad():
        close(module(x), run_parts(module, x))


@each_making
def test_linear_with_a_weight_of_another_making(make):
    linear, x = nn.Linear(IN, OUT, bias=False), torch.randn(6, IN)
    weight = linear.weight.detach()
    linear._parameters["weight"] = make(weight)
    with torch.no_grad():
        close(linear(x), 2 * x @ weight.T)


class Dropped(torch.nn.Module):
    """DropConnect: another weight whenever it is read."""

    def forward(self, weight):
        return torch.nn.functional.dropout(weight, 0.5, self.training)


@pytest.mark.parametrize("rank", [2, 3])
@each_fused
def test_computed_weights_are_read_once(kind, rank):
    """In a call, as by the plain module: they may draw random numbers, or move a state."""
    module, x = build(kind), torch.randn(6, OUT, IN)[: 6 if rank == 3 else 1].squeeze(0)
    for part in [module.gemm] if kind == "LinearScaleLeakyReLU" else [module.gemm, module.bn]:
        torch.nn.utils.parametrize.register_parametrization(part, "weight", Dropped())
    torch.manual_seed(0)
    ours = module(x)
    torch.manual_seed(0)
    close(ours, run_parts(module, x))


@pytest.mark.parametrize("key", ["weight", "bias"])
def test_parametrized_parts_have_no_parameter_to_share(key):
    class Doubled(torch.nn.Module):
        def forward(self, value):
            return 2 * value

    linear, bn = torch.nn.Linear(IN, OUT), torch.nn.BatchNorm1d(OUT)
    for module, part, kind in ((linear, "linear", nn.Linear), (bn, "bn", nn.BatchNorm1d)):
        torch.nn.utils.parametrize.register_parametrization(module, key, Doubled())
        expected = f"^{kind.__name__}: {key} of {part} must be a torch.nn.Parameter or None, got"
        with pytest.raises(TypeError, match=expected):
            kind.from_eager(module)


def test_refused_parametrizations_are_not_updated():
    """That of the spectral norm is, whenever the weight is read in training."""
    linear = parametrizations.spectral_norm(torch.nn.Linear(IN, OUT))
    before = linear.parametrizations.weight[0]._u.clone()
    with pytest.raises(TypeError, match="must be a torch.nn.Parameter"):
        nn.Linear.from_eager(linear)
    assert torch.equal(linear.parametrizations.weight[0]._u, before)
