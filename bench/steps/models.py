"""Whole models of which bench.training times a step, and the same with our modules in place.

All are torch.nn.Sequential of what they are published with, less their dropout: two calls with it
differ. Each says where its sizes come from.
"""

import itertools

import torch
from torch import Tensor
from torch.nn import GELU, BatchNorm1d, LayerNorm, LeakyReLU, Linear, ReLU, SiLU, Tanh

from cutlass_fused import nn


class Residual(torch.nn.Sequential):
    """x + the parts of x."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


def build_mapping(k: int, n: int) -> torch.nn.Sequential:
    """8 layers of 512, slope 0.2: Karras et al., "Analyzing and Improving the Image Quality of
    StyleGAN", 2020. Its normalized z and the scales of its weights are left out."""
    widths = (k, *[512] * 7, n)
    layers = ((Linear(*pair), LeakyReLU(0.2)) for pair in itertools.pairwise(widths))
    return torch.nn.Sequential(*itertools.chain(*layers))


def build_pointnet_head(k: int, n: int) -> torch.nn.Sequential:
    """1024 to 512, 256 and 40 classes of ModelNet40: Qi et al., "PointNet", 2017; batches of 32."""
    parts = [Linear(k, 512), BatchNorm1d(512), ReLU(), Linear(512, 256), BatchNorm1d(256), ReLU()]
    return torch.nn.Sequential(*parts, Linear(256, n))


def build_tabular_resnet(k: int, n: int) -> torch.nn.Sequential:
    """Two blocks of 192, 384 inside: the example of the package rtdl_revisiting_models. Covertype
    has 54 features and 7 classes, and gets batches of 1024 in its paper: Gorishniy et al.,
    "Revisiting Deep Learning Models for Tabular Data", 2021."""
    blocks = [
        Residual(BatchNorm1d(192), Linear(192, 384), ReLU(), Linear(384, 192)) for _ in range(2)
    ]
    return torch.nn.Sequential(Linear(k, 192), *blocks, BatchNorm1d(192), ReLU(), Linear(192, n))


def build_dlrm_top(k: int, n: int) -> torch.nn.Sequential:
    """479-1024-1024-512-256-1, and batches of 2048: the run on Criteo's terabyte in the repository
    of Naumov et al., "Deep Learning Recommendation Model", 2019."""
    return build_mlp((k, 1024, 1024, 512, 256, n), ReLU)


def build_pinn(k: int, n: int) -> torch.nn.Sequential:
    """8 hidden layers of 20, and 10000 points: Burgers' equation of Raissi et al.,
    "Physics-informed neural networks", 2019."""
    return build_mlp((k, *[20] * 8, n), Tanh)


def build_vit_mlp(k: int, n: int) -> torch.nn.Sequential:
    """768-3072-768: ViT-B/16 of Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021; 16
    images of 197 tokens."""
    return torch.nn.Sequential(
        Residual(LayerNorm(k), Linear(k, 4 * k), GELU(), Linear(4 * k, n)),
    )


def build_potential(layers: int, width: int) -> torch.nn.Sequential:
    """The energy of an atom from as many features as a layer is wide."""
    return build_mlp((*[width] * layers, 1), SiLU)


def build_mlp(widths: tuple[int, ...], activation: type) -> torch.nn.Sequential:
    """None behind the last layer."""
    layers = ((Linear(*pair), activation()) for pair in itertools.pairwise(widths))
    return torch.nn.Sequential(*itertools.chain(*layers))[:-1]


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
