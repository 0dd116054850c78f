"""What the models run on, and whether the kernels can."""

import torch

from .. import _library, config


def choose_device() -> str:
    """Tells what was found, and returns "cuda" or "cpu"."""
    if not torch.cuda.is_available():
        print(
            "No GPU was found: this is the CPU reference implementation, at a reduced batch and\n"
            "size. Its errors are those of plain PyTorch, its times say nothing about the kernels."
        )
        return "cpu"
    print(f"GPU: {torch.cuda.get_device_name()}")
    return "cuda"


def find_obstacle() -> str | None:
    """Why the kernels cannot run on the GPU that was found."""
    if not _library.is_loaded():
        return _library.load_error()
    return config.find_refusal(torch.cuda.get_device_capability(), config.read_build_info())


def keep_seed(device: str):
    """The random generators of this device and of the CPU, restored."""
    return torch.random.fork_rng([torch.cuda.current_device()] if device == "cuda" else [])
