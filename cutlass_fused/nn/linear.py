"""Linear."""

import torch
from torch import Tensor
from torch.fx import Proxy

from .. import functional
from ..precision import Precision, check_precision
from ._parts import (
    HOLDERS,
    SAME_FORWARD,
    call_as_leaf,
    check_linear,
    check_parameters,
    describe_precision,
    is_foreign,
    read_operands,
)
from ._script import refuse_script


class Linear(torch.nn.Linear):
    """y = x @ weight.T + bias: torch.nn.Linear with an explicit precision.

    Args:
        in_features, out_features, bias, device, dtype: as of torch.nn.Linear.
        precision: "ieee", "tf32", or None to follow PyTorch's own setting; see
            cutlass_fused.functional.linear, which also tells shapes, dtypes, numerics and errors.

    Raises ValueError for an unknown precision.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        precision: Precision | None = None,
        device=None,
        dtype=None,
    ) -> None:
        check_precision(precision, "Linear")
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.precision = precision

    @classmethod
    def from_eager(cls, linear: torch.nn.Linear, *, precision: Precision | None = None) -> "Linear":
        """A module that shares the Parameters of `linear` and takes over its training mode.

        Raises TypeError where `linear` is no torch.nn.Linear, or has another forward, hooks, or a
        weight that is no Parameter, as under a parametrization; ValueError for an unknown
        precision.
        """
        check_linear("Linear", linear)
        check_parameters("Linear", "linear", linear)
        module = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            precision=precision,
            device="meta",
        )
        module.weight, module.bias = linear.weight, linear.bias
        return module.train(linear.training)

    __prepare_scriptable__ = refuse_script

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return call_as_leaf(self, input)
        weight, bias, split = read_operands(self, self.precision)
        if is_foreign(weight):
            return torch.nn.functional.linear(input, weight, bias)
        return functional.linear(input, weight, bias, precision=self.precision, weight_split=split)

    def _get_name(self) -> str:
        return "cutlass_fused.Linear"

    def extra_repr(self) -> str:
        return super().extra_repr() + describe_precision(self.precision)


SAME_FORWARD[torch.nn.Linear] = Linear.forward
HOLDERS.add(Linear)
