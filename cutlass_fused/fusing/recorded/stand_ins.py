"""What a recording gives a forward in place of tensors."""

import dis
import operator
import sys
from collections.abc import Callable, Iterator
from typing import NoReturn

from torch.fx import Proxy
from torch.fx.proxy import Attribute

from .code import Declined, is_of_user

_IN_PLACE = ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor")
_OWN = ("node", "_node", "tracer", "root", "attr")  # what torch.fx sets
_UNPACK, _READS = dis.opmap["UNPACK_SEQUENCE"], ("LOAD_ATTR", "LOAD_METHOD")


class StandIn(Proxy):
    """One that sees what is written to a tensor. torch.fx takes `x += y` for `x = x + y`, which is
    another thing where something else has x, and misses `x.requires_grad = True`. To Python it is
    an object like any other: it has a hash and words, which are not those of what it stands for.
    """

    def __setattr__(self, name: str, value) -> None:
        if name not in _OWN:
            raise Declined(f"it writes {name} of a tensor")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> "StandIn":
        frame = sys._getframe(1)
        code = frame.f_code
        if is_of_user(code.co_filename) and _name_instruction(frame) not in _READS:
            # With a default it gives that, where there is no such attribute.
            raise Declined(f"{code.co_name} asks a tensor for {name} by getattr")
        return _AttributeStandIn(self, name)

    def __iter__(self) -> Iterator:
        frame = sys._getframe(1)
        code, at = frame.f_code.co_code, frame.f_lasti
        if code[at] != _UNPACK or (at > 1 and code[at - 2] == dis.EXTENDED_ARG):
            return super().__iter__()  # which raises, or is no loop of the forward's
        count = code[at + 1]
        if self.node.op == "call_module":  # which may give anything that can be unpacked
            values = self.tracer.create_proxy("call_function", unpack, (self, count), {})
            return (values[i] for i in range(count))
        self.tracer.create_proxy("call_function", check_length, (self, count), {})
        return (self[i] for i in range(count))

    def __hash__(self) -> NoReturn:
        raise Declined("it looks up a tensor, or what it asks of one, by its hash")

    def __str__(self) -> NoReturn:
        raise Declined("it makes words of a tensor, or of what it asks of one")

    def __format__(self, form: str) -> NoReturn:
        raise Declined("it makes words of a tensor, or of what it asks of one")

    __repr__ = __str__


class _AttributeStandIn(StandIn, Attribute):
    """x.name, of which only a call or a use makes a node."""


def check_length(value, count: int) -> None:
    """As Python does in front of an assignment to several names."""
    found = len(value)
    if found < count:
        raise ValueError(f"not enough values to unpack (expected {count}, got {found})")
    if found > count:
        raise ValueError(f"too many values to unpack (expected {count})")


def unpack(value, count: int) -> tuple:
    values = tuple(value)
    check_length(values, count)
    return values


def _name_instruction(frame) -> str:
    return dis.opname[frame.f_code.co_code[frame.f_lasti]]


def _make_in_place(function: Callable) -> Callable:
    def write(x: StandIn, other) -> Proxy:
        return x.tracer.create_proxy("call_function", function, (x, other), {})

    return write


for _name in _IN_PLACE:
    setattr(StandIn, f"__{_name}__", _make_in_place(getattr(operator, _name)))
