"""The router of a mixture of experts: Dai et al., "DeepSeekMoE: Towards Ultimate Expert
Specialization in Mixture-of-Experts Language Models", 2024. Its head is in fp32, whatever the model
is in: Fedus et al., "Switch Transformers", 2021, on selective precision."""

import torch
from torch import Tensor


class Router(torch.nn.Module):
    """Tokens, (M, k), -> probabilities of all experts, (M, n), weights of the chosen ones and their
    indices, (M, active). 6 of 64 experts at 2048 features: DeepSeekMoE 16B."""

    def __init__(self, k: int = 2048, n: int = 64, active: int = 6) -> None:
        super().__init__()
        self.gate, self.active = torch.nn.Linear(k, n, bias=False), active

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores = self.gate(x.to(self.gate.weight.dtype))
        probabilities = torch.softmax(scores, dim=1)
        weights, experts = probabilities.topk(self.active, dim=1)
        return probabilities, weights, experts
