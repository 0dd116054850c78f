"""python -m cutlass_fused.demo: one model, its error and its time, beside PyTorch's own.

The model is Linear -> x * multiplier -> LeakyReLU on torch.rand inputs. On a GPU it runs in four
precisions at full size; without one, the CPU reference runs at a reduced size.
"""

import argparse
import contextlib
import sys
from typing import NamedTuple

import torch
from torch import Tensor

from . import __version__, _library, config, nn
from .timing import time_in_turns

MULTIPLIER, NEGATIVE_SLOPE = 2.0, 0.1


class Size(NamedTuple):
    batch: int
    features: int  # both K and N


GPU_SIZE = Size(1024, 8192)
CPU_SIZE = Size(64, 1024)


class Precision(NamedTuple):
    label: str
    dtype: torch.dtype
    setting: str  # what the fused module is given and what PyTorch's fp32 products are set to


PRECISIONS = {
    "ieee": Precision("fp32 ieee", torch.float32, "ieee"),
    "tf32": Precision("fp32 tf32", torch.float32, "tf32"),
    "bf16": Precision("bf16", torch.bfloat16, "ieee"),
    "fp16": Precision("fp16", torch.float16, "ieee"),
}


class PlainModel(torch.nn.Module):
    """The model in plain PyTorch."""

    def __init__(self, in_features: int, out_features: int, device=None, dtype=None) -> None:
        super().__init__()
        self.gemm = torch.nn.Linear(in_features, out_features, device=device, dtype=dtype)
        self.activation = torch.nn.LeakyReLU(NEGATIVE_SLOPE)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.gemm(x) * MULTIPLIER)


@contextlib.contextmanager
def set_matmul_precision(setting: str):
    """PyTorch's fp32 products in this precision, and the setting restored."""
    # By PyTorch's older setter: torch.compile's autotuner reads the older flag, which raises once
    # the newer setter was used.
    before = torch.backends.cuda.matmul.fp32_precision
    names = {"tf32": "high"}
    torch.set_float32_matmul_precision(names.get(setting, "highest"))
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(names.get(before, "highest"))


def compute_truth(plain: PlainModel, x: Tensor, rows: int = 1024) -> Tensor:
    """The model in float64, on the numbers that the given precision holds.

    It takes so many `rows` of weight at a time: all of them in float64 would take 512 MiB.
    """
    x = x.double()
    columns = []
    for weight, bias in zip(
        plain.gemm.weight.split(rows), plain.gemm.bias.split(rows), strict=True
    ):
        z = torch.nn.functional.linear(x, weight.double(), bias.double())
        columns.append(torch.nn.functional.leaky_relu(z * MULTIPLIER, NEGATIVE_SLOPE))
    return torch.cat(columns, dim=-1)


def compute_error(y: Tensor, truth: Tensor) -> float:
    """The relative L2 error."""
    return ((y.double() - truth).norm() / truth.norm()).item()


def format_row(label: str, errors: dict[str, float], times: dict[str, float]) -> str:
    peers = [name for name in times if name != "ours"]
    cells = [f"{label:10}"]
    cells += [f"{error:14.2e}" for error in errors.values()]
    cells += [f"{ms:10.3f}" for ms in times.values()]
    cells += [f"{times[name] / times['ours']:13.2f}" for name in peers]
    return " ".join(cells)


def format_header(names: list[str]) -> str:
    cells = [f"{'precision':10}"]
    cells += [f"{'error ' + name:>14}" for name in ("ours", "eager")]
    cells += [f"{name + ' ms':>10}" for name in names]
    cells += [f"{name + '/ours':>13}" for name in names if name != "ours"]
    return " ".join(cells)


def run_precision(precision: Precision, size: Size, device: str) -> str:
    """One row of the table."""
    plain = PlainModel(size.features, size.features, device, precision.dtype)
    fused = nn.LinearScaleLeakyReLU.from_eager(
        plain.gemm, MULTIPLIER, plain.activation, precision=precision.setting
    )
    x = torch.rand(size.batch, size.features, device=device).to(precision.dtype)
    models = {"ours": fused, "eager": plain}
    truth = compute_truth(plain, x)
    errors = {name: compute_error(model(x), truth) for name, model in models.items()}
    if device == "cuda":
        models["compile"] = torch.compile(plain)
    variants = {name: (lambda model=model: model(x)) for name, model in models.items()}
    timings = time_in_turns(variants, device)
    times = {name: timing.median for name, timing in timings.items()}
    return format_row(precision.label, errors, times)


def list_precisions(device: str) -> list[str]:
    # CPUs have no TF32: its row would repeat the one of fp32.
    return [name for name in PRECISIONS if device == "cuda" or name != "tf32"]


def keep_seed(device: str):
    """The random generators of this device and of the CPU, restored."""
    return torch.random.fork_rng([torch.cuda.current_device()] if device == "cuda" else [])


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


def parse_batch(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a positive integer, got {text!r}")
    return int(text)


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cutlass_fused.demo", description=__doc__)
    parser.add_argument(
        "--batch",
        type=parse_batch,
        help=f"M; default {GPU_SIZE.batch}, {CPU_SIZE.batch} on the CPU",
    )
    parser.add_argument("--precision", choices=PRECISIONS, help="default: all of them")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
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
        f"model: leaky_relu((x @ weight.T + bias) * {MULTIPLIER}, {NEGATIVE_SLOPE}), "
        f"M={size.batch}, K=N={size.features}, torch.rand inputs\n"
        "error: relative L2 error against float64; ms: median\n"
    )
    print(format_header(["ours", "eager", "compile"] if device == "cuda" else ["ours", "eager"]))
    for name in [options.precision] if options.precision else list_precisions(device):
        precision = PRECISIONS[name]
        with torch.no_grad(), keep_seed(device), set_matmul_precision(precision.setting):
            torch.manual_seed(0)
            print(run_precision(precision, size, device), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
