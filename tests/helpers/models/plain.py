"""The plain models: what a user has before importing cutlass_fused."""

import torch
from torch.nn import functional as F

from cutlass_fused import nn


class PlainLinearScaleLeakyReLU(torch.nn.Module):
    """Linear -> x * multiplier -> LeakyReLU."""

    def __init__(
        self, in_features, out_features, multiplier, negative_slope, bias=True, device=None
    ):
        super().__init__()
        self.gemm = torch.nn.Linear(in_features, out_features, bias, device=device)
        self.multiplier = multiplier
        self.leaky_relu = torch.nn.LeakyReLU(negative_slope)

    def forward(self, x):
        return self.leaky_relu(self.gemm(x) * self.multiplier)


def run_plain(x, weight, bias=None, scale=1.0, negative_slope=0.01):
    """The expression behind functional.linear_scale_leaky_relu."""
    return F.leaky_relu(F.linear(x, weight, bias) * scale, negative_slope)


class PlainLinearScaleBatchNorm1d(torch.nn.Module):
    """Linear -> x * scale -> BatchNorm1d."""

    def __init__(
        self,
        in_features,
        out_features,
        scale_shape,
        eps=1e-5,
        momentum=0.1,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.gemm = torch.nn.Linear(in_features, out_features, bias, **options)
        self.scale = torch.nn.Parameter(torch.randn(scale_shape, **options))
        self.bn = torch.nn.BatchNorm1d(out_features, eps=eps, momentum=momentum, **options)

    def forward(self, x):
        return self.bn(self.gemm(x) * self.scale)


class PlainLinearBatchNorm1dScaleSoftmax(torch.nn.Module):
    """Linear -> BatchNorm1d -> scale * x -> Softmax(dim=1)."""

    def __init__(
        self,
        in_features,
        out_features,
        bn_eps=1e-5,
        bn_momentum=0.1,
        scale_shape=(1,),
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        options = {"device": device, "dtype": dtype}
        self.gemm = torch.nn.Linear(in_features, out_features, bias, **options)
        self.bn = torch.nn.BatchNorm1d(out_features, eps=bn_eps, momentum=bn_momentum, **options)
        self.scale = torch.nn.Parameter(torch.ones(scale_shape, **options))
        self.softmax = torch.nn.Softmax(dim=1)

    def forward(self, x):
        return self.softmax(self.scale * self.bn(self.gemm(x)))


def run_plain_batch_norm(x, running_mean, running_var, gamma, beta, training, momentum, eps):
    """The expression behind functional.batch_norm, in any order of the arguments' dtypes."""
    if training:
        mean, variance = x.mean(0), x.var(0, correction=0)
    else:
        mean, variance = running_mean, running_var
    y = (x - mean) / torch.sqrt(variance + eps)
    y = y if gamma is None else y * gamma
    y = y if beta is None else y + beta
    if training and running_mean is not None:
        with torch.no_grad():
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_(x.var(0).to(running_var.dtype), momentum)
    return y


def run_plain_scale_batch_norm(x, weight, bias, scale, *statistics):
    """The expression behind functional.linear_scale_batch_norm."""
    z = F.linear(x, weight, bias)
    return run_plain_batch_norm(z if scale is None else z * scale, *statistics)


def run_plain_batch_norm_softmax(x, weight, bias, scale, *statistics):
    """The expression behind functional.linear_batch_norm_scale_softmax."""
    b = run_plain_batch_norm(F.linear(x, weight, bias), *statistics)
    return F.softmax(b if scale is None else scale * b, dim=1)


def run_parts(module, x):
    """What one of our modules stands for, with its parts as they are."""
    z = module.gemm(x)
    if isinstance(module, nn.LinearScaleLeakyReLU):
        return F.leaky_relu(z * module.multiplier, module.negative_slope)
    if isinstance(module, nn.LinearScaleBatchNorm1d):
        return module.bn(z * module.scale)
    return torch.softmax(module.scale * module.bn(z), dim=1)
