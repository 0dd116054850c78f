"""LinearScaleLeakyReLU."""

import numbers

import torch
from torch import Tensor
from torch.fx import Proxy
from torch.nn.functional import leaky_relu

from .. import functional
from ..precision import Precision, check_precision
from ._parts import (
    call_as_leaf,
    check_kind,
    check_part,
    describe_precision,
    find_precision,
    is_plain,
    read_module,
    read_operands,
    unpack_sequential,
)
from ._script import refuse_script


class LinearScaleLeakyReLU(torch.nn.Module):
    """y = leaky_relu((x @ weight.T + bias) * multiplier, negative_slope)

    Its state dict is that of a module with a torch.nn.Linear named `gemm`: `gemm.weight` of shape
    (out_features, in_features) and `gemm.bias` of shape (out_features,).

    Args:
        in_features, out_features: sizes of the last dimension of x and of y.
        multiplier, negative_slope: numbers of any sign.
        bias, device, dtype: as of torch.nn.Linear.
        precision: "ieee", "tf32", or None to follow PyTorch's own setting; see
            cutlass_fused.functional.linear_scale_leaky_relu, which also tells shapes, dtypes,
            numerics and errors.

    Raises TypeError for a multiplier or slope that is no number, ValueError for an unknown
    precision.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        multiplier: float,
        negative_slope: float,
        *,
        bias: bool = True,
        precision: Precision | None = None,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        self._set_options(multiplier, negative_slope, precision)
        self.gemm = torch.nn.Linear(in_features, out_features, bias, device=device, dtype=dtype)

    @classmethod
    def from_eager(
        cls,
        linear: "torch.nn.Linear | torch.nn.Sequential",
        multiplier: float = 1.0,
        negative_slope: "float | torch.nn.LeakyReLU | None" = None,
        *,
        precision: Precision | None = None,
    ) -> "LinearScaleLeakyReLU":
        """A module that holds `linear` itself as `gemm` and takes over its training mode.

        A torch.nn.LeakyReLU gives its slope, and a Sequential of a Linear and a LeakyReLU both
        parts. A Linear of this package gives its precision where none is given. A `linear` that has
        hooks or another forward, as one that quantises, is called as it is.

        Raises TypeError where `linear` is no torch.nn.Linear, or where a torch.nn.LeakyReLU has
        hooks or another forward; ValueError for an unknown precision.
        """
        name = "LinearScaleLeakyReLU"
        kinds = (torch.nn.Linear, torch.nn.LeakyReLU)
        if negative_slope is None and (parts := unpack_sequential(name, linear, kinds)):
            linear, negative_slope = parts
        check_kind(name, "linear", linear, torch.nn.Linear)
        if isinstance(negative_slope, torch.nn.LeakyReLU):
            check_part(name, "negative_slope", negative_slope, torch.nn.LeakyReLU)
            negative_slope = negative_slope.negative_slope
        module = cls.__new__(cls)
        torch.nn.Module.__init__(module)
        module._set_options(multiplier, negative_slope, find_precision(precision, linear))
        module.gemm = linear
        return module.train(linear.training)

    def _set_options(self, multiplier, negative_slope, precision) -> None:
        check_precision(precision, "LinearScaleLeakyReLU")
        self.multiplier = _check_number("multiplier", multiplier)
        self.negative_slope = _check_number("negative_slope", negative_slope)
        self.precision = precision

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as the constructor does."""
        self.gemm.reset_parameters()

    __prepare_scriptable__ = refuse_script

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(x, Proxy):
            return call_as_leaf(self, x)
        gemm = read_module(self, "gemm")
        if not is_plain(gemm, torch.nn.Linear):
            return leaky_relu(gemm(x) * self.multiplier, self.negative_slope)
        weight, bias, split = read_operands(gemm, self.precision)
        return functional.linear_scale_leaky_relu(
            x,
            weight,
            bias,
            self.multiplier,
            self.negative_slope,
            precision=self.precision,
            weight_split=split,
        )

    def extra_repr(self) -> str:
        options = f"multiplier={self.multiplier}, negative_slope={self.negative_slope}"
        return options + describe_precision(self.precision)


def _check_number(name: str, value) -> float:
    if isinstance(value, torch.Tensor) and value.dim() == 0:
        value = value.item()
    if not isinstance(value, numbers.Real):
        raise TypeError(
            f"LinearScaleLeakyReLU: {name} must be a number, got {type(value).__name__}"
        )
    return float(value)
