"""Whether a fused model does all that the plain one does: results, gradients, what a call leaves in
the model and outside of it, random numbers, exceptions."""

import dataclasses
import random

import numpy as np
import torch
from linear_tails import K, N
from torch import Tensor, nn

import cutlass_fused


class Holder(nn.Module):
    """A model whose forward is given."""

    def __init__(self, **parts) -> None:
        super().__init__()
        self.fc, self.other = nn.Linear(K, N), nn.Linear(K, N)
        for name, part in parts.items():
            setattr(self, name, part)


def hold(forward, **parts) -> nn.Module:
    """A model of this forward. `parts`: functions that make its parts."""
    kind = type("Model", (Holder,), {"forward": forward})
    return kind(**{name: make() for name, make in parts.items()})


def check_same(make, *calls):
    """make: gives a model, or one and a function that reads what its calls leave outside of it.
    calls: tuples of arguments, or dicts of them by name; each comes twice, in training and in eval.

    Returns the report of fuse.
    """
    (plain, read_plain), (model, read) = _make(make), _make(make)
    _put_gradients(model)
    _put_gradients(plain)
    report = cutlass_fused.fuse(model)
    check_equal("behind fuse", describe(model, read), describe(plain, read_plain))
    for is_training in (True, False):
        for index, call in enumerate([*calls, *calls]):
            found = []
            for each, read_each in ((model, read), (plain, read_plain)):
                each.train(is_training)
                _put_gradients(each)
                found.append(observe(each, call, index) + describe(each, read_each))
            check_equal(f"call {index}, training {is_training}", *found)
    return report


def _put_gradients(model: nn.Module) -> None:
    for each in model.parameters():
        each.grad = torch.ones_like(each)


def check_fused(report) -> None:
    """Whether the forward of the model itself is fused, and a call has come to its sites."""
    found = [forward for forward in report.forwards if forward.path == ""]
    assert found and not report.left, report
    sites = [site for plan in found[0].plans for site in plan.sites]
    assert any(site.last is not None for site in sites), report


def _make(make):
    _seed(0)
    made = make()
    return made if isinstance(made, tuple) else (made, lambda: None)


def _seed(number: int) -> None:
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def observe(model: nn.Module, call, seed: int = 0) -> list:
    """Results or an exception, gradients of all parameters, and how random numbers go on."""
    args, kwargs = ((), call) if isinstance(call, dict) else (call, {})
    _seed(seed)
    try:
        result = _flatten("result", model(*args, **kwargs))
    except Exception as error:
        found = [("exception", type(error))]
    else:
        found = result + _differentiate(model, [each for _, each in result])
    return [*found, *_draw()]


def _draw() -> list:
    drawn = torch.rand(()).item(), np.random.rand(), random.random()
    return [("random numbers", drawn)]


def _differentiate(model: nn.Module, result: list) -> list:
    of = [each for each in result if isinstance(each, Tensor) and each.requires_grad]
    if not of:
        return []
    named = {name: each for name, each in model.named_parameters() if each.requires_grad}
    loss = sum(each.double().square().sum() for each in of)
    try:
        grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    except RuntimeError as error:
        return [("exception of gradients", type(error))]
    return [(f"gradient of {name}", grad) for name, grad in zip(named, grads, strict=True)]


def describe(model: nn.Module, read) -> list:
    """What a model holds, and what `read` says."""
    found = [("keys", list(model.state_dict())), *_flatten("outside", read())]
    for path, module in model.named_modules():
        for place in ("_parameters", "_buffers"):
            found += _flatten(f"{place} of {path}", vars(module)[place])
        grads = [each.grad for each in module.parameters(recurse=False)]
        found += _flatten(f"grads of {path}", grads)
        found += [(f"modules of {path}", list(module._modules))]
        found += [(f"hooks of {path}", _count_hooks(module))]
        names = sorted(name for name in vars(module) if not name.startswith("_"))
        for name in names:
            value = vars(module)[name]
            if not callable(value):
                found += _flatten(f"{name} of {path}", value)
    return found


def _count_hooks(module: nn.Module) -> dict:
    return {name: len(held) for name, held in vars(module).items() if name.endswith("_hooks")}


def _flatten(what: str, value) -> list:
    """Pairs of a name and a tensor, a number, or another value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(what, type(value).__name__), *_flatten(what, vars(value))]
    if isinstance(value, dict):
        pairs = [(what, list(value))]
        return pairs + [e for key, each in value.items() for e in _flatten(f"{what}.{key}", each)]
    if isinstance(value, (tuple, list)):
        pairs = [(what, (type(value).__name__, len(value)))]
        return pairs + [e for i, each in enumerate(value) for e in _flatten(f"{what}.{i}", each)]
    # Of a module `describe` tells.
    return [(what, type(value).__name__ if isinstance(value, nn.Module) else value)]


def check_equal(when: str, ours: list, theirs: list) -> None:
    """Of what `observe` and `describe` give."""
    raised = [value for what, value in (*ours, *theirs) if "exception" in what]
    assert [what for what, _ in ours] == [what for what, _ in theirs], (when, raised)
    for (what, found), (_, expected) in zip(ours, theirs, strict=True):
        assert type(found) is type(expected), (when, what, found, expected)
        if isinstance(found, Tensor):
            _check_tensors(f"{when}, {what}", found, expected)
        else:
            assert found == expected, (when, what)


def _check_tensors(what: str, found: Tensor, expected: Tensor) -> None:
    assert found.requires_grad == expected.requires_grad, what
    if found.is_meta:
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), what
        return
    torch.testing.assert_close(found, expected, equal_nan=True, msg=lambda text: f"{what}: {text}")
