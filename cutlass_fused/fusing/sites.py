"""A site: a product and its chain, which a call computes at once, or by PyTorch's ops."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from ..functional._derived import native
from ..nn._parts import HOOKS, is_foreign, is_plain, read_operands
from ..precision import resolve_precision
from ..weights.splits import find_split
from .calls import Call
from .recorded.chains import find_name, is_along_rows, needs_matrix
from .recorded.functions import Functions
from .recorded.regions import Region
from .recorded.texts import Text
from .shorter import Shorter
from .worth import find_loss

# By one name each: every call asks.
_is_grad_enabled = torch.is_grad_enabled
_is_any_autocast_enabled = torch._C._is_any_autocast_enabled
_count_modes = torch._C._len_torch_dispatch_stack

_PLAIN = (Tensor, nn.Parameter)
_STRIDED = torch.strided
# Decisions that are kept. A model of many shapes asks again.
_MOST = 256


class Decision(NamedTuple):
    """why: what speaks against the fused call; None: it is made. out_dtype: of its result.
    direct: the same by its op alone, of direct.py; None: there is no such.
    instead: where PyTorch's ops need not compute all of it, a shorter chain."""

    why: str | None
    out_dtype: torch.dtype | None = None
    direct: Callable | None = None
    instead: Shorter | None = None


class Site:
    """s(x, *operands) or, of a product of functions, s(x, weight, bias, *operands)."""

    def __init__(
        self,
        where: str,
        region: Region,
        functions: Functions,
        call: Call,
        precision: str | None,
        find_shorter: Callable[[], Shorter | None],
    ) -> None:
        self.where, self.precision, self.call = where, precision, call
        self.names = [region.product.name, *map(find_name, region.nodes)]
        self.obstacle = ""
        self.tail = None  # what another kernel computes behind it
        self.functions, self.plain = functions, functions.plain
        product = region.product
        self.linear, self.is_transposed = product.module, product.is_transposed
        self.has_bias, self._adds = product.bias is not None, product.adds
        self.is_matrix = product.takes_matrices or call.norm is not None
        self.is_matrix |= any(map(needs_matrix, region.nodes))
        self.is_bare = not region.nodes
        # Batch norms have functions of their own.
        self.is_of_rows = call.norm is None and any(map(is_along_rows, region.nodes))
        self.modules = [n.meta["module"] for n in region.nodes if n.op == "call_module"]
        self.last: Decision | None = None
        # Found where a call needs it, and then once.
        self._find_shorter = functools.cache(find_shorter)
        self._norm = call.norm
        self._held = [
            (module, module.__dict__[place], name) for module, place, name in functions.held
        ]
        self._run, self._decisions = call.run, {}
        self._recent: tuple[tuple | None, Decision | None] = None, None
        linears = [] if self.linear is None else [self.linear]
        self._is_blocked = write_block([*linears, *self.modules])

    def __call__(self, x, *given):
        taken = self.take(x, given)
        if taken is None:
            return self.plain(x, *given)
        weight, bias, split, operands = taken
        key = (
            x.shape,
            x.dtype,
            x.layout,
            x.is_cuda,
            weight.shape,
            weight.dtype,
            type(weight),
            None if bias is None else (bias.shape, bias.dtype, type(bias)),
            _is_any_autocast_enabled() and describe_autocast(x),
        )
        if operands:
            # One of no dimension may lie on the CPU, beside an x that does not.
            key += tuple([(e.shape, e.dtype, e.is_cuda, type(e)) for e in operands])
        if _is_grad_enabled():
            key += tuple([e is not None and e.requires_grad for e in (x, weight, bias, *operands)])
        recent, decision = self._recent  # a comparison takes less time than a look into a dict
        if key != recent:
            decision = self._decisions.get(key)
            if decision is None:
                return self._decide(key, x, given, weight, bias, split, operands)
            self._recent = key, decision
        direct = decision.direct
        if self.is_transposed and decision.why is None:
            split = self._find_split(x, given[0])
        if direct is not None and not (forward_ad._current_level >= 0 or _count_modes()):
            return direct(x, weight, bias, split, operands)
        if decision.why is not None:
            return (decision.instead or self.plain)(x, *given)
        return self._run(x, weight, bias, split, operands, decision.out_dtype)

    def take(self, x, given) -> tuple | None:
        """What the fused call takes; None where something has come in between: hooks, tensors of
        another kind."""
        # A nested tensor has no shape to ask for.
        if type(x) not in _PLAIN or x.is_nested or self._is_blocked():
            return None
        if self.linear is not None:
            weight, bias, split = read_operands(self.linear, self.precision)
            if weight is None or type(weight) is not nn.Parameter and is_foreign(weight):
                return None
            if weight.layout is not _STRIDED:
                return None
            operands = given
        else:
            weight, *operands = given
            bias, split = (operands.pop(0) if self.has_bias else None), None
            if not _is_ordinary(weight):
                return None
            weight = weight.t() if self.is_transposed else weight
        if self._held:
            held = self._held
            more = [p[n] if n in p else getattr(module, n) for module, p, n in held]
            operands = [*operands, *more]
        if type(bias) is not nn.Parameter and is_foreign(bias):
            return None
        for each in operands:
            if not _is_ordinary(each):
                return None
        return weight, bias, split, operands

    def _find_split(self, x: Tensor, weight: Tensor) -> Tensor | None:
        """What is kept of a parameter of (K, N) in inference: weight.t() is another tensor in each
        call, of which nothing can be."""
        is_kept = type(weight) is nn.Parameter and not _is_grad_enabled()
        if not is_kept or not weight.is_cuda or not x.dtype == weight.dtype == torch.float32:
            return None
        if _is_any_autocast_enabled():
            return None
        word = resolve_precision(self.precision, "linear", weight.dtype)
        return find_split(weight, word, of_columns=True)

    def _decide(self, key, x, given, weight, bias, split, operands):
        if x.is_cuda and torch.cuda.is_current_stream_capturing():
            # Nothing can be linked now; a graph is captured behind a call that has decided.
            return self.plain(x, *given)
        why, out_dtype, shape = self._find_reason(x, weight, bias, operands), None, None
        # Whether another chain of the same product may be served.
        is_too_long = why is None or (self.is_matrix and x.dim() > 2)
        if why is None and self.call.takes_dtype:
            why, out_dtype, shape = self._expect(x, weight, bias, operands)
        y = None
        if why is None:
            try:
                y = self._run(x, weight, bias, split, operands, out_dtype)
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, TypeError, ValueError) as error:
                why = str(error).strip().splitlines()[0]
            else:
                if shape is not None and y.shape != shape:
                    why = f"its result has shape {tuple(y.shape)}, not {tuple(shape)}"
                elif self._is_composed(x, weight, bias, operands, out_dtype):
                    why = "its gradient is no program"
        direct = None
        if why is None and self._may_be_direct(x, weight, bias, operands):
            direct = self.call.find_direct(x, weight, bias, operands, out_dtype)
        instead = None
        if why is not None and is_too_long:
            instead = self._find_shorter()
            y = self.plain(x, *given) if instead is None else instead(x, *given)
            if instead is not None and not instead.list_names():
                instead = None
        elif why is not None:
            y = self.plain(x, *given)
        decision = Decision(why, out_dtype, direct, instead)
        if len(self._decisions) >= _MOST:
            self._decisions.clear()
        self._decisions[key] = self.last = decision
        return y

    def _is_composed(self, x: Tensor, weight: Tensor, bias, operands, out_dtype) -> bool:
        """PyTorch's ops then also compute the result, of an fp32 product. A shorter chain takes
        less memory and time."""
        return x.is_cuda and self.call.is_composed(x, weight, bias, operands, out_dtype)

    def _may_be_direct(self, x: Tensor, weight: Tensor, bias, operands) -> bool:
        if not x.is_cuda or describe_autocast(x) or _find_dtype(x) != x.dtype:
            return False
        return all(each is None or type(each) in _PLAIN for each in (weight, bias, *operands))

    def _find_reason(self, x: Tensor, weight: Tensor, bias, operands) -> str | None:
        if x.layout is not _STRIDED:
            return "x is sparse"
        if x.dim() < 2 or (self.is_matrix and x.dim() != 2):
            return f"x has {x.dim()} dimensions"
        if weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
            return "shapes do not fit"
        if self._norm is not None and not is_plain(self._norm, nn.BatchNorm1d):
            return "the batch norm is no plain one"
        dtype = _find_dtype(x)
        if dtype == x.dtype and weight.dtype != dtype:
            return "x and weight differ in their dtypes"
        if self._adds and bias.dtype != dtype:
            return "the product and what is added to it differ in their dtypes"
        is_trained = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
        # In C++ gradients take the host about as long as PyTorch's, and the sum of a bias takes the
        # GPU half as long. Each call would cast a weight again that autocast casts once.
        is_native = weight.requires_grad and native.is_defined()
        adds_up = is_native and bias is not None and bias.requires_grad and dtype == weight.dtype
        return find_loss(
            *(x, weight, dtype, self.precision),
            is_bare=self.is_bare and not (is_trained and adds_up),
            is_trained=is_trained,
            is_of_rows=self.is_of_rows and not is_native,
        )

    def _expect(self, x, weight, bias, operands):
        """A reason, the dtype and the shape of what PyTorch's ops give, found without computing."""
        from torch._subclasses import FakeTensorMode

        tensors = (x, weight, bias, *operands)
        with torch.no_grad(), FakeTensorMode():
            fakes = [None if each is None else imitate(each) for each in tensors]
            try:
                y = self.functions.compose(*fakes)
            except Exception as error:
                return f"PyTorch's ops refuse it: {type(error).__name__}", None, None
            if not isinstance(y, Tensor):
                return "it gives no tensor", None, None
            dtype, shape = y.dtype, y.shape
        if dtype not in (_find_dtype(x), torch.float32):
            return f"its result is of {dtype}", None, None
        return None, dtype, shape


def write_block(modules: list[nn.Module]) -> Callable[[], bool]:
    """Whether one of the modules has hooks, or a forward of its own, by now. The forward around has
    seen that their classes are those that they were, and that no hook of all modules is there."""
    text, parts = Text(), []
    for module in modules:
        held = text.bind(module.__dict__)
        parts += [f"{held}[{place!r}]" for place in HOOKS]
        parts.append(f"'forward' in {held}")
    text.lines.append(f"return {' or '.join(parts) or False}")
    return text.make("is_blocked()", "check")


def _is_ordinary(value) -> bool:
    """Whether it is a dense tensor, for which functions do what they do for all."""
    if type(value) not in _PLAIN and (not isinstance(value, Tensor) or is_foreign(value)):
        return False
    return value.layout is _STRIDED and not value.is_nested


def imitate(tensor: Tensor) -> Tensor:
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )


def _find_dtype(x: Tensor) -> torch.dtype:
    """Of the product."""
    described = torch._C._is_any_autocast_enabled() and describe_autocast(x)
    if described and x.is_floating_point() and x.dtype != torch.float64:
        return described
    return x.dtype


def describe_autocast(x: Tensor) -> torch.dtype | None:
    kind = x.device.type
    if kind == "meta":  # which has none
        return None
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
