"""Real models as their papers describe them, in plain torch.nn with random weights.

None of them knows of cutlass_fused: `cutlass_fused.fuse(model)` takes them as they are. The benches
build them here too. `EXAMPLES` has each at its published size.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .dlrm_top import build_dlrm_top
from .moe_router import Router
from .pinn import build_pinn
from .pointnet_head import build_pointnet_head
from .potential import NEIGHBOURS_SHAPE, Potential, draw_neighbours
from .stylegan2_mapping import build_mapping
from .tabular_resnet import build_tabular_resnet
from .vit_mlp import build_vit_mlp


class Example(NamedTuple):
    title: str
    build: Callable[[], torch.nn.Module]
    # Rows of x -> x, in float32 on the default device
    draw: Callable[[int], Tensor]


def draw_rows(width: int) -> Callable[[int], Tensor]:
    return lambda rows: torch.randn(rows, width)


EXAMPLES = {
    "stylegan2_mapping": Example("mapping network of StyleGAN2", build_mapping, draw_rows(512)),
    "pointnet_head": Example("head of PointNet", build_pointnet_head, draw_rows(1024)),
    "tabular_resnet": Example("tabular ResNet", build_tabular_resnet, draw_rows(54)),
    "vit_mlp": Example("MLP block of ViT-B", build_vit_mlp, draw_rows(768)),
    "dlrm_top": Example("top MLP of DLRM", build_dlrm_top, draw_rows(479)),
    "pinn": Example("PINN of Burgers' equation", build_pinn, draw_rows(2)),
    "potential": Example("interatomic potential", Potential, draw_neighbours),
    "moe_router": Example("router of DeepSeekMoE", Router, draw_rows(2048)),
}

__all__ = [
    "EXAMPLES",
    "NEIGHBOURS_SHAPE",
    "Example",
    "Potential",
    "Router",
    "build_dlrm_top",
    "build_mapping",
    "build_pinn",
    "build_pointnet_head",
    "build_tabular_resnet",
    "build_vit_mlp",
    "draw_neighbours",
]
