"""Error and time of three models, beside PyTorch's own.

On a GPU every model runs in four precisions at full size; without one, the CPU reference runs at a
reduced size. The models with batch norm are in training.
"""

import argparse
import functools
import pathlib
from collections.abc import Iterable, Sequence

import torch

from .. import __version__
from ..comparison import MODELS, PRECISIONS, choose_device, find_obstacle
from .measure import Size, measure
from .table import format_header, format_line

GPU_SIZE = Size(1024, 8192)
CPU_SIZE = Size(64, 1024)


def list_precisions(device: str) -> list[str]:
    # CPUs have no TF32: its row would repeat the one of fp32.
    return [name for name in PRECISIONS if device == "cuda" or name != "tf32"]


def run_model(name: str, precisions: Iterable[str], size: Size, device: str) -> list[dict]:
    """Prints the model's part of the table; returns its rows."""
    model = MODELS[name]
    mode = ", in training" if model.mode == "train" else ""
    print(f"\n{model.formula}{mode}")
    print(format_header(["ours", "eager", "compile"] if device == "cuda" else ["ours", "eager"]))
    rows = []
    for precision in precisions:
        measured = measure(name, precision, size, device)
        print(format_line(measured), flush=True)
        rows += measured
    return rows


def parse_batch(least: int, text: str) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be an integer of at least {least}, got {text!r}")
    return int(text)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cutlass_fused.demo", description=__doc__)
    parser.add_argument(
        "--batch",
        # A batch of one has no variance.
        type=functools.partial(parse_batch, 2),
        help=f"M; default {GPU_SIZE.batch}, {CPU_SIZE.batch} on the CPU",
    )
    parser.add_argument("--model", choices=MODELS, help="default: all of them")
    parser.add_argument("--precision", choices=PRECISIONS, help="default: all of them")
    parser.add_argument(
        "--plot",
        type=pathlib.Path,
        metavar="FILE.png",
        help="draw the speed-ups; needs matplotlib",
    )
    options = parser.parse_args(arguments)
    if options.plot is not None:
        # Before anything is measured for it.
        try:
            import matplotlib  # noqa: F401
        except ImportError as error:
            parser.error(f"--plot needs matplotlib (pip install matplotlib): {error}")
        if not options.plot.parent.is_dir():
            parser.error(f"--plot: there is no folder {options.plot.parent}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    device = choose_device()
    if device == "cuda" and (obstacle := find_obstacle()):
        print(f"The kernels cannot run on it: {obstacle}")
        return 1
    size = GPU_SIZE if device == "cuda" else CPU_SIZE
    if options.batch is not None:
        size = size._replace(batch=options.batch)

    print(
        f"cutlass_fused {__version__}, torch {torch.__version__}\n"
        f"M={size.batch}, K=N={size.features}, torch.rand inputs\n"
        "error: relative L2 error against float64; ms: median"
    )
    rows = []
    for name in [options.model] if options.model else MODELS:
        precisions = [options.precision] if options.precision else list_precisions(device)
        rows += run_model(name, precisions, size, device)
    if options.plot is not None:
        from ..comparison.drawing import draw_speedups

        draw_speedups(rows, options.plot)
        print(f"\n{options.plot}: drawn")
    return 0
