"""What cutlass_fused.fuse does to a model: its sites, what stays, and why.

FACTORY is called without arguments. It returns a torch.nn.Module or, to have it called and timed, a
pair of that and its inputs: a tensor, a tuple, or a dict of arguments by name.
"""

import argparse
import importlib
import inspect
import os
import sys
from collections.abc import Sequence

import torch
from torch import nn

from ..comparison import find_obstacle
from ..fusing import fuse
from ..fusing.verify import read_inputs
from ..precision import PRECISIONS


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m cutlass_fused.explain",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("factory", metavar="MODULE:FACTORY", help="such as my.models:make_model")
    parser.add_argument("--precision", choices=PRECISIONS, help="of fp32; default: PyTorch's")
    parser.add_argument("--train", action="store_true", help="a step of training; default: eval")
    parser.add_argument("--verify", action="store_true", help="the errors of all sites, too")
    options = parser.parse_args(arguments)
    try:
        options.model, options.inputs = load(options.factory)
    except ValueError as error:
        parser.error(str(error))
    if options.verify and options.inputs is None:
        parser.error("--verify needs inputs: FACTORY must return (model, inputs), got a model")
    return options


def load(place: str) -> tuple[nn.Module, object]:
    """The model and its inputs, or None. Raises ValueError."""
    name, colon, path = place.partition(":")
    if not (name and colon and path) or name.startswith("."):
        raise ValueError(f"MODULE:FACTORY must be two names with a colon between, got {place!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ValueError(f"there is no module {error.name!r}") from error
        raise
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{name} has no {path}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{place} must be a function, got {type(found).__name__}")
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise ValueError(f"{place} is called without arguments: {error}") from None
    except ValueError:  # a function of C may not tell its arguments
        pass
    made = found()
    model, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, nn.Module):
        must = "must return a torch.nn.Module, or a pair of one and its inputs"
        raise ValueError(f"{place} {must}, got {type(model).__name__}")
    if inputs is not None:
        try:
            read_inputs(inputs)
        except TypeError as error:
            raise ValueError(str(error).replace("fuse: verify", f"the inputs of {place}")) from None
    return model, inputs


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    model, inputs = options.model.train(options.train), options.inputs
    has_gpu = torch.cuda.is_available()
    obstacle = find_obstacle() if has_gpu else "no GPU was found"
    if obstacle is None and inputs is not None:
        from .measure import measure

        print(measure(model, inputs, options.precision, options.train, options.verify))
        return 0
    report = fuse(model, precision=options.precision, verify=inputs if options.verify else None)
    if inputs is not None:
        args, kwargs = read_inputs(inputs)
        with torch.no_grad():
            model(*args, **kwargs)  # so that the report has what a call decides
    print(report)
    if obstacle is not None:
        print(f"Times need a GPU: {obstacle}")
    elif inputs is None:
        print("Times need inputs: FACTORY must return (model, inputs)")
    return 0
