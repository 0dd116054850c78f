"""The forward of one instance."""

import copy
import inspect
import types

import torch
from torch import nn
from torch.utils._device import DeviceContext

from .plan import Plan, make_plan
from .recorded.recording import Declined

# Plans of one module: its modes, and values of attributes that it reads. One that changes them in
# every call is called as it is.
_MOST_PLANS = 8

# By one name each: every call asks.
_is_compiling, _is_tracing = torch.compiler.is_compiling, torch._C._is_tracing
_are_transforms_active = torch._C._are_functorch_transforms_active


_count_modes = torch._C._len_torch_function_stack


def is_followed() -> bool:
    """By a compiler, which fuses for itself, or by a trace, a transform of torch.func or a mode of
    the user's, which see PyTorch's ops."""
    if _count_modes() and _has_other_modes():
        return True
    return _is_compiling() or _is_tracing() or _are_transforms_active()


def _has_other_modes() -> bool:
    """Than the one of a default device, which changes no product."""
    modes = (torch._C._get_function_stack_at(i) for i in range(_count_modes()))
    return any(type(mode) is not DeviceContext for mode in modes)


class FusedForward:
    """Stands in the dictionary of a module as its `forward`. A copy of the module has one of its
    own, which finds its plan in the first call."""

    def __init__(self, module: nn.Module, path: str, precision: str | None) -> None:
        self.module, self.path, self.precision = module, path, precision
        self.plain = types.MethodType(type(module).forward, module)
        self.plans: list[Plan] = []
        self.declined: str | None = None
        self._failures = 0
        self._run = self._choose

    def prepare(self) -> Plan:
        """The plan of the module as it is now. Raises Declined."""
        for plan in self.plans:
            if plan.is_current():
                self._run = plan.run
                return plan
        if len(self.plans) >= _MOST_PLANS:
            raise Declined("attributes that its forward reads change from call to call")
        plan = make_plan(self.module, self.path, self.precision, self._call_plain, self._choose)
        self.plans.append(plan)
        self._run = plan.run
        return plan

    def __call__(self, /, *args, **kwargs):
        if is_followed():
            return type(self.module).forward(self.module, *args, **kwargs)
        return self._run(*args, **kwargs)

    def _choose(self, /, *args, **kwargs):
        if self._failures < _MOST_PLANS:
            try:
                plan = self.prepare()
            except Declined as error:
                self.declined = str(error)
                self._failures += 1
            else:
                return plan.run(*args, **kwargs)
        return self._call_plain(*args, **kwargs)

    def _call_plain(self, /, *args, **kwargs):
        return type(self.module).forward(self.module, *args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.plain)

    @property
    def __code__(self):  # which torch.export reads
        return self.plain.__code__

    @property
    def __wrapped__(self):
        return self.plain

    @property
    def __name__(self) -> str:
        return self.plain.__name__

    @property
    def __func__(self):
        return self.plain.__func__

    @property
    def __self__(self) -> nn.Module:
        return self.module

    def __repr__(self) -> str:
        return f"<fused forward of {type(self.module).__name__}>"

    @property
    def arguments(self) -> tuple:
        """Those beside the module, of which another one is made."""
        return self.path, self.precision

    def close(self) -> None:
        """It stands in its module no longer."""

    def __deepcopy__(self, memo) -> "FusedForward":
        return type(self)(copy.deepcopy(self.module, memo), *self.arguments)

    def __reduce__(self):
        return type(self), (self.module, *self.arguments)
