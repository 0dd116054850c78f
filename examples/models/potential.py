"""An MLP interatomic potential.

Behler and Parrinello, "Generalized Neural-Network Representation of High-Dimensional
Potential-Energy Surfaces", 2007, with the radial features, the cutoff and the widths of Smith et
al., "ANI-1", 2017.
"""

import torch
from torch import Tensor
from torch.nn import SiLU

from .parts import build_mlp

CUTOFF = 5.2  # angstrom, as all lengths
FIRST_SHELL, SHELLS, ETA = 0.9, 16, 16.0
ELEMENTS, NEIGHBOURS = 4, 4
NEIGHBOURS_SHAPE = ELEMENTS, NEIGHBOURS, 3


class Potential(torch.nn.Module):
    """Displacements to the neighbours of each atom, by their element, (M, 4, 4, 3), -> the energy
    of each atom, (M, 1).

    Features: sums over the neighbours of exp(-eta (r - r_s)^2) (cos(pi r / r_c) + 1) / 2. The
    activation is SiLU, as potentials have it today, in place of a Gaussian. Lengths stay in the
    dtype of the displacements; the layers are in that of their weights.
    """

    def __init__(self) -> None:
        super().__init__()
        step = (CUTOFF - FIRST_SHELL) / SHELLS
        self.register_buffer("centres", FIRST_SHELL + step * torch.arange(SHELLS))
        self.layers = build_mlp((ELEMENTS * SHELLS, 128, 128, 64, 1), SiLU)

    def forward(self, displacements: Tensor) -> Tensor:
        r = displacements.norm(dim=-1, keepdim=True)
        shells = torch.exp(-ETA * (r - self.centres).square())
        smooth = 0.5 * torch.cos(torch.pi / CUTOFF * r.clamp(max=CUTOFF)) + 0.5
        features = (shells * smooth).sum(dim=2).flatten(1)
        return self.layers(features.to(self.layers[0].weight.dtype))


def compute_forces(model: torch.nn.Module, displacements: Tensor) -> Tensor:
    """The force along each displacement, -dE/dr: what a simulation adds up for both atoms of it.
    Under torch.enable_grad, of displacements that require a gradient."""
    energy = model(displacements).sum()
    (slope,) = torch.autograd.grad(energy, displacements)
    return -slope


def compute_trained_forces(model: torch.nn.Module, displacements: Tensor) -> Tensor:
    """The same for a loss of forces, which differentiates them again."""
    energy = model(displacements).sum()
    (slope,) = torch.autograd.grad(energy, displacements, create_graph=True)
    return -slope


def draw_neighbours(rows: int) -> Tensor:
    """Displacements between the first shell and the cutoff, in every direction."""
    directions = torch.randn(rows, *NEIGHBOURS_SHAPE)
    lengths = FIRST_SHELL + (CUTOFF - FIRST_SHELL) * torch.rand(rows, ELEMENTS, NEIGHBOURS, 1)
    return lengths * directions / directions.norm(dim=-1, keepdim=True)
