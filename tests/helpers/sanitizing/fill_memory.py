"""New memory of PyTorch's, full of NaN, and of the largest integers."""

import torch


def fill_new_memory(device: str = "cuda") -> None:
    """From here on, of all that PyTorch allocates, for ops of ours too."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    if not torch.empty(64, device=device).isnan().all():
        raise SystemExit("PyTorch does not fill what it allocates")
