"""Modules with the parameters of the plain ones: state dicts are interchangeable, both ways.

Built under the same seed, a module's parameters equal the plain model's, bit for bit.
"""

import numbers

import torch
from torch import Tensor

from . import functional
from .precision import check_precision


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
        precision: str | None = None,
        device=None,
        dtype=None,
    ) -> None:
        check_precision(precision, "Linear")
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.precision = precision

    @classmethod
    def from_eager(cls, linear: torch.nn.Linear, *, precision: str | None = None) -> "Linear":
        """A module that shares the Parameters of `linear` and takes over its training mode."""
        _check_linear("Linear", linear)
        module = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            precision=precision,
            device="meta",
        )
        module.weight, module.bias = linear.weight, linear.bias
        return module.train(linear.training)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias, precision=self.precision)

    def extra_repr(self) -> str:
        return super().extra_repr() + _describe_precision(self.precision)


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
        precision: str | None = None,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        self._set_options(multiplier, negative_slope, precision)
        self.gemm = torch.nn.Linear(in_features, out_features, bias, device=device, dtype=dtype)

    @classmethod
    def from_eager(
        cls,
        linear: torch.nn.Linear,
        multiplier: float,
        negative_slope: "float | torch.nn.LeakyReLU",
        *,
        precision: str | None = None,
    ) -> "LinearScaleLeakyReLU":
        """A module that holds `linear` itself as `gemm` and takes over its training mode.

        A torch.nn.LeakyReLU gives its slope.
        """
        _check_linear("LinearScaleLeakyReLU", linear)
        if isinstance(negative_slope, torch.nn.LeakyReLU):
            negative_slope = negative_slope.negative_slope
        module = cls.__new__(cls)
        torch.nn.Module.__init__(module)
        module._set_options(multiplier, negative_slope, precision)
        module.gemm = linear
        return module.train(linear.training)

    def _set_options(self, multiplier, negative_slope, precision) -> None:
        check_precision(precision, "LinearScaleLeakyReLU")
        self.multiplier = _check_number("multiplier", multiplier)
        self.negative_slope = _check_number("negative_slope", negative_slope)
        self.precision = precision

    def forward(self, x: Tensor) -> Tensor:
        gemm = self.gemm
        return functional.linear_scale_leaky_relu(
            x,
            gemm.weight,
            gemm.bias,
            self.multiplier,
            self.negative_slope,
            precision=self.precision,
        )

    def extra_repr(self) -> str:
        options = f"multiplier={self.multiplier}, negative_slope={self.negative_slope}"
        return options + _describe_precision(self.precision)


def _check_linear(name: str, linear) -> None:
    if not isinstance(linear, torch.nn.Linear):
        raise TypeError(f"{name}: linear must be a torch.nn.Linear, got {type(linear).__name__}")


def _check_number(name: str, value) -> float:
    if not isinstance(value, numbers.Real):
        raise TypeError(
            f"LinearScaleLeakyReLU: {name} must be a number, got {type(value).__name__}"
        )
    return float(value)


def _describe_precision(precision: str | None) -> str:
    return "" if precision is None else f", precision={precision!r}"
