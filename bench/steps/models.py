"""Whole models of which bench.training times a step, and the same with our modules in place.

All are torch.nn.Sequential of examples/models, less their dropout: two calls with it differ.
"""

import torch
from torch.nn import GELU, BatchNorm1d, LeakyReLU, Linear, ReLU, SiLU, Tanh

from cutlass_fused import nn
from examples import models
from examples.models import dlrm_top, stylegan2_mapping
from examples.models.parts import build_mlp


def build_mapping(k: int, n: int) -> torch.nn.Sequential:
    """Without its normalized z."""
    return stylegan2_mapping.build_layers(k, n)


def build_pointnet_head(k: int, n: int) -> torch.nn.Sequential:
    """Its paper has batches of 32."""
    return models.build_pointnet_head(k, n, dropout=0.0)


def build_tabular_resnet(k: int, n: int) -> torch.nn.Sequential:
    """Covertype gets batches of 1024 in its paper."""
    return models.build_tabular_resnet(k, n, dropout=0.0)


def build_dlrm_top(k: int, n: int) -> torch.nn.Sequential:
    """Without its sigmoid; its repository has batches of 2048."""
    return dlrm_top.build_layers(k, n)


def build_vit_mlp(k: int, n: int) -> torch.nn.Sequential:
    """16 images have 3152 tokens."""
    return models.build_vit_mlp(k, n, dropout=0.0)


def build_potential(layers: int, width: int) -> torch.nn.Sequential:
    """The energy of an atom from as many features as a layer is wide."""
    return build_mlp((*[width] * layers, 1), SiLU)


def has_kinks(model: torch.nn.Module) -> bool:
    return any(isinstance(module, (ReLU, LeakyReLU)) for module in model.modules())


def draw_weights(model: torch.nn.Module) -> None:
    """So that neither results nor gradients vanish over the layers: fp16 would lose them."""
    # All activations but tanh take about half of the squares away.
    gain = 1.0 if any(isinstance(module, Tanh) for module in model.modules()) else 2.0
    for module in model.modules():
        if isinstance(module, Linear):
            torch.nn.init.normal_(module.weight, std=(gain / module.in_features) ** 0.5)


def replace_linears(model: torch.nn.Sequential, precision: str | None) -> torch.nn.Sequential:
    """The model with a module of ours for each Linear and what follows it, where there is one. It
    shares the parameters and buffers; other parts are the model's own."""
    parts, replaced = list(model), []
    while parts:
        first, follower = parts.pop(0), parts[0] if parts else None
        options = {"precision": precision}
        if isinstance(first, torch.nn.Sequential):
            replaced.append(replace_linears(first, precision))
        elif not isinstance(first, Linear):
            replaced.append(first)
        elif isinstance(follower, (ReLU, LeakyReLU)):
            slope = getattr(parts.pop(0), "negative_slope", 0.0)
            ours = nn.LinearScaleLeakyReLU.from_eager(first, 1.0, slope, **options)
            replaced.append(ours)
        elif isinstance(follower, BatchNorm1d):
            ours = nn.LinearScaleBatchNorm1d.from_eager(first, 1.0, parts.pop(0), **options)
            replaced.append(ours)
        elif isinstance(follower, (SiLU, GELU, Tanh)):
            ours = nn.LinearActivation.from_eager(first, parts.pop(0), **options)
            replaced.append(ours)
        else:
            replaced.append(nn.Linear.from_eager(first, **options))
    return type(model)(*replaced).train(model.training)
