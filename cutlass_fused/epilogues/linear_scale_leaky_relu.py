"""linear_scale_leaky_relu: a scale, and LeakyReLU."""

import torch
from torch import Tensor

from ._description import Epilogue, Functor, Gradient, Number, RowOrScalar


def scale_leaky_relu(
    z: Tensor, scale: Tensor | None, multiplier: float, negative_slope: float
) -> Tensor:
    """v = z * scale * multiplier; y = v where v > 0, else v * negative_slope; all in z's dtype."""
    v = z if scale is None else z * scale
    v = v * multiplier
    return torch.where(v > 0, v, v * negative_slope)


def find_factor(scale: Tensor | None, multiplier: float, dtype: torch.dtype) -> Tensor | float:
    """dv/dz"""
    return multiplier if scale is None else scale.to(dtype) * multiplier


def differentiate(
    grad_y: Tensor, positive: Tensor, factor: Tensor | float, negative_slope: float
) -> Tensor:
    """dy/dz is the factor, times the slope where v is not positive."""
    return torch.where(positive, grad_y * factor, grad_y * (factor * negative_slope))


def differentiate_scale(
    grad_y: Tensor, z: Tensor, positive: Tensor, multiplier: float, negative_slope: float
) -> Tensor:
    grad_v = torch.where(positive, grad_y, grad_y * negative_slope)
    return grad_v * z * multiplier


def _of_z(grad_y, z, scale, multiplier, negative_slope):
    factor = find_factor(scale, multiplier, z.dtype)
    return differentiate(grad_y, z * factor > 0, factor, negative_slope)


def _of_scale(grad_y, z, scale, multiplier, negative_slope):
    positive = z * find_factor(scale, multiplier, z.dtype) > 0
    return differentiate_scale(grad_y, z, positive, multiplier, negative_slope)


EPILOGUE = Epilogue(
    op="linear_scale_leaky_relu",
    text="leaky_relu(z * scale * multiplier, negative_slope)",
    formula=scale_leaky_relu,
    operands=(
        RowOrScalar("scale"),
        Number("multiplier", default=1.0),
        Number("negative_slope", default=0.01),
    ),
    functor=Functor(
        "ScaleLeakyReLU", "scale_leaky_relu.hpp", "{bias, {scale, multiplier}, negative_slope}"
    ),
    gradient=Gradient(z=_of_z, operands={"scale": _of_scale}),
    notes="""\
The multiplier and the slope are numbers of any sign, also zero. NaN and infinities come out
where PyTorch puts them.""",
)
