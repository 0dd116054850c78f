"""What a recording gives a forward in place of tensors."""

import operator
from collections.abc import Callable

from torch import Tensor
from torch.fx import Proxy

from .code import Declined

_IN_PLACE = ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor")


class StandIn(Proxy):
    """One that sees what is written to a tensor. torch.fx takes `x += y` for `x = x + y`, which is
    another thing where something else has x, and misses `x.requires_grad = True`.
    """

    def __setattr__(self, name: str, value) -> None:
        if hasattr(Tensor, name):
            raise Declined(f"it writes {name} of a tensor")
        super().__setattr__(name, value)


def _make_in_place(function: Callable) -> Callable:
    def write(x: StandIn, other) -> Proxy:
        return x.tracer.create_proxy("call_function", function, (x, other), {})

    return write


for _name in _IN_PLACE:
    setattr(StandIn, f"__{_name}__", _make_in_place(getattr(operator, _name)))
