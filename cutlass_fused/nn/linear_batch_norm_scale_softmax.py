"""LinearBatchNorm1dScaleSoftmax."""

import torch
from torch import Tensor
from torch.fx import Proxy

from .. import functional
from ..precision import Precision, check_precision
from ._parts import (
    call_as_leaf,
    check_linear_batch_norm,
    check_not_given,
    check_part,
    check_scale,
    check_scale_shape,
    collect_statistics,
    describe_precision,
    find_precision,
    hold_scale,
    is_left_to_eager,
    multiply,
    normalize,
    read_module,
    read_operands,
    restore_scale,
    unpack_sequential,
)
from ._script import refuse_script

_NOT_GIVEN = object()


def _choose(name: str, value, alias, missing, default):
    """An option by its name, or by the name with bn_ in front."""
    if value is not missing and alias is not missing:
        raise TypeError(f"LinearBatchNorm1dScaleSoftmax: {name} and bn_{name} are one, got both")
    value = alias if value is missing else value
    return default if value is missing else value


class LinearBatchNorm1dScaleSoftmax(torch.nn.Module):
    """y = softmax(scale * batch_norm(x @ weight.T + bias), dim=1)

    In training the statistics are those of the batch, and the running ones are updated; in eval
    they are the running ones. As in the plain model, the mode is that of `bn`.

    x is (M, in_features). Behind the product of an x of any other rank PyTorch's own batch norm and
    softmax run, along dimension 1 as in the plain model.

    Its state dict is that of a module with a torch.nn.Linear named `gemm`, a torch.nn.BatchNorm1d
    named `bn`, and a torch.nn.Parameter named `scale`, which starts as ones.

    Args:
        in_features, out_features: sizes of the last dimension of x and of y.
        eps, momentum, affine, track_running_stats: as of torch.nn.BatchNorm1d; momentum None is the
            mean over all batches. The first two may also be called bn_eps and bn_momentum.
        scale_shape: of one element, () or (1,), or (out_features,), also as a row, (1, ...).
        bias, device, dtype: as of torch.nn.Linear.
        precision: "ieee", "tf32", or None to follow PyTorch's own setting; see
            cutlass_fused.functional.linear_batch_norm_scale_softmax, which also tells shapes,
            dtypes, numerics and errors.

    Raises ValueError for an unknown precision or another scale_shape.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bn_eps: float | None = None,
        bn_momentum: float | None = _NOT_GIVEN,
        scale_shape: int | tuple[int, ...] = (1,),
        *,
        eps: float | None = None,
        momentum: float | None = _NOT_GIVEN,
        affine: bool = True,
        track_running_stats: bool = True,
        bias: bool = True,
        precision: Precision | None = None,
        device=None,
        dtype=None,
    ) -> None:
        eps = _choose("eps", eps, bn_eps, None, 1e-5)
        momentum = _choose("momentum", momentum, bn_momentum, _NOT_GIVEN, 0.1)
        check_precision(precision, "LinearBatchNorm1dScaleSoftmax")
        check_scale_shape("LinearBatchNorm1dScaleSoftmax", scale_shape, out_features)
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.gemm = torch.nn.Linear(in_features, out_features, bias, **options)
        self.bn = torch.nn.BatchNorm1d(
            out_features, eps, momentum, affine, track_running_stats, **options
        )
        self.scale = torch.nn.Parameter(torch.ones(scale_shape, **options))
        self.precision = precision

    @classmethod
    def from_eager(
        cls,
        linear: "torch.nn.Linear | torch.nn.Sequential",
        bn: torch.nn.BatchNorm1d | None = None,
        scale: "torch.nn.Parameter | float" = 1.0,
        *,
        precision: Precision | None = None,
    ) -> "LinearBatchNorm1dScaleSoftmax":
        """A module that holds these three themselves and takes over the training mode of `bn`.

        A number as the scale is a constant, which no state dict has. A torch.nn.Sequential of the
        other parts may stand for them. A Linear of this package gives its precision where none is
        given.

        One that has hooks or another forward, as one that quantises, is called as it is.

        Raises TypeError where a part is none of torch.nn's, or a Sequential has hooks, another
        forward or a `bn` beside it; ValueError where the sizes of the parts do not fit, where a
        softmax has another dim, or for an unknown precision.
        """
        name = "LinearBatchNorm1dScaleSoftmax"
        kinds = (torch.nn.Linear, torch.nn.BatchNorm1d)
        if parts := unpack_sequential(name, linear, kinds, (torch.nn.Softmax,)):
            check_not_given(name, bn)
            linear, bn = parts[:2]
            for softmax in parts[2:]:
                check_part(name, "softmax", softmax, torch.nn.Softmax)
                if softmax.dim not in (1, -1):
                    raise ValueError(f"{name}: softmax must have dim=1, got dim={softmax.dim}")
        precision = find_precision(precision, linear)
        check_precision(precision, name)
        check_linear_batch_norm(name, linear, bn)
        check_scale(name, scale, linear.out_features)
        module = cls.__new__(cls)
        torch.nn.Module.__init__(module)
        module.gemm, module.bn = linear, bn
        hold_scale(module, scale, linear)
        module.precision, module.training = precision, bn.training
        return module

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as the constructor does, and forget the running statistics."""
        self.gemm.reset_parameters()
        self.bn.reset_parameters()
        if "scale" in self._parameters:  # a number from from_eager is none
            torch.nn.init.ones_(self.scale)

    __prepare_scriptable__ = refuse_script

    def _apply(self, fn, recurse=True):
        return restore_scale(super()._apply(fn, recurse))

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(x, Proxy):
            return call_as_leaf(self, x)
        gemm, bn = read_module(self, "gemm"), read_module(self, "bn")
        if is_left_to_eager(gemm, bn, x):
            z = multiply(gemm, x, self.precision)
            return functional.softmax(self.scale * normalize(bn, z), dim=1)
        weight, bias, split = read_operands(gemm, self.precision)
        return functional.linear_batch_norm_scale_softmax(
            x,
            weight,
            bias,
            self.scale,
            **collect_statistics(bn),
            precision=self.precision,
            weight_split=split,
        )

    def extra_repr(self) -> str:
        return f"scale_shape={tuple(self.scale.shape)}" + describe_precision(self.precision)
