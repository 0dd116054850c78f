"""python -m examples.export_package --out model.pt2: packages a model, fused, for programs that
have neither Python nor the source of the model.

The package takes any number of rows from 2 to --most-rows. `examples/cpp/run_package.cpp` runs it,
as does any process in Python that imports cutlass_fused. With --input a batch is written too, for
these to run on.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

import cutlass_fused

from .models import EXAMPLES

COMPILER = pathlib.Path(__file__).with_name("cpp") / "own_gcc"


def export_package(
    model: torch.nn.Module, x: Tensor, path: str, most_rows: int = 16384, **options
) -> str:
    """Writes a package of a model in inference, which takes x with 2 rows or more. A package holds
    what the model does on the device of x. `options` are those of Inductor. Returns the path."""
    options = {"cpp.cxx": (None, str(COMPILER)), **options}
    batch = torch.export.Dim("batch", min=2, max=most_rows)
    with torch.no_grad():
        program = torch.export.export(model.eval(), (x,), dynamic_shapes=({0: batch},))
        return torch._inductor.aoti_compile_and_package(
            program, package_path=path, inductor_configs=options
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.export_package", description=__doc__)
    parser.add_argument("--model", choices=EXAMPLES, default="dlrm_top")
    parser.add_argument("--out", required=True, help="the package, model.pt2")
    parser.add_argument("--input", help="where to write a batch")
    parser.add_argument("--rows", type=int, default=256, help="of that batch")
    parser.add_argument("--most-rows", type=int, default=16384)
    parser.add_argument("--precision", choices=("ieee", "tf32"), default="ieee")
    parser.add_argument("--no-fuse", action="store_true", help="package the model as it is")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    example = EXAMPLES[options.model]
    model, x = example.build().eval().to(options.device), example.draw(options.rows)
    ours = {}
    if not options.no_fuse:
        # Inductor finds in the program what `fuse` finds in modules, and fuses the rest by itself.
        ours = cutlass_fused.inductor_options(precision=options.precision)
    path = export_package(model, x.to(options.device), options.out, options.most_rows, **ours)
    if options.input:
        torch.save(x, options.input)
    print(f"{path}: {options.model} for {options.device}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
