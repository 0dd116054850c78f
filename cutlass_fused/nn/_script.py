"""What torch.jit.script does with the modules."""

from typing import NoReturn

import torch


def refuse_script(module: torch.nn.Module) -> NoReturn:
    """Its compiler knows a part of Python, and would name one of the lines that it does not know.
    As `__prepare_scriptable__` of a class it is called for modules within others too."""
    name = type(module).__name__
    raise NotImplementedError(
        f"{name}: TorchScript must be made by torch.jit.trace under torch.no_grad(), "
        f"got torch.jit.script"
    )
