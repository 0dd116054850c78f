"""linear_scale_batch_norm_inference: a scale, and a batch norm with its running statistics."""

import torch
from torch import Tensor

from ._description import Epilogue, Functor, Number, Row, RowOrScalar


def normalize(
    z: Tensor,
    mean: Tensor,
    variance: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    eps: float,
) -> Tensor:
    """(z - mean) / sqrt(variance + eps) * gamma + beta, in z's dtype."""
    # Centred before it is scaled: one folded shift, beta - mean * gamma * rstd, would cancel where
    # the mean is much larger than the standard deviation.
    y = (z - mean) / torch.sqrt(variance.to(z.dtype) + eps)
    if gamma is not None:
        y = y * gamma
    return y if beta is None else y + beta


def scale_batch_norm(
    z: Tensor,
    scale: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    eps: float,
) -> Tensor:
    v = z if scale is None else z * scale
    return normalize(v, running_mean, running_var, gamma, beta, eps)


EPILOGUE = Epilogue(
    op="linear_scale_batch_norm_inference",
    text="(z * scale - running_mean) / sqrt(running_var + eps) * gamma + beta",
    formula=scale_batch_norm,
    operands=(
        RowOrScalar("scale"),
        Row("running_mean", required=True),
        Row("running_var", required=True, absent=1.0),
        Row("gamma", absent=1.0),
        Row("beta"),
        Number("eps", default=1e-5),
    ),
    functor=Functor("ScaleBatchNorm", "scale_batch_norm.hpp"),
    notes="x may have any number of leading dimensions, also none.",
)
