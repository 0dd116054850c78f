"""How the files beside this were made, by the version that their names say. They are never made
anew: what people keep of that version must go on working.

    PYTHONPATH=. python tests/compatibility/make.py FOLDER
"""

import json
import pathlib
import re
import sys

import torch

import cutlass_fused
from cutlass_fused import functional, nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
IN, OUT = 12, 20


def build_modules() -> dict[str, torch.nn.Module]:
    """In training, and with options that are not the defaults."""
    torch.manual_seed(0)
    return {
        "linear": nn.Linear(IN, OUT, precision="tf32"),
        "leaky_relu": nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1, bias=False),
        "scale_norm": nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,), 1e-3, 0.3, precision="ieee"),
        "norm_softmax": nn.LinearBatchNorm1dScaleSoftmax(IN, OUT, scale_shape=(1,)),
        "norm": nn.BatchNorm1d(IN, momentum=None),
        "softmax": nn.Softmax(-1),
        "of_parts": nn.LinearScaleBatchNorm1d.from_eager(
            torch.nn.Linear(IN, OUT), 2.0, torch.nn.BatchNorm1d(OUT)
        ),
        # From 0.2.0 on.
        "activation": nn.LinearActivation(IN, OUT, "hardtanh", min_val=-0.3, max_val=0.4),
        "prelu": nn.LinearActivation(IN, OUT, "prelu", init=0.2, precision="ieee"),
    }


@cutlass_fused.epilogue
def gate(acc, bias, factor):
    """Of elements."""
    return torch.nn.functional.gelu(acc + bias) * factor


@cutlass_fused.epilogue
def normalize(acc, residual):
    """Along rows."""
    return torch.nn.functional.layer_norm(acc + residual, acc.shape[-1:], eps=1e-3)


class All(torch.nn.Module):
    """One program: each module in training and in eval, and, from 0.2.0 on, texts of epilogues."""

    def __init__(self, modules):
        super().__init__()
        self.trained = torch.nn.ModuleDict(modules)
        self.evaluated = torch.nn.ModuleDict(
            {name: build_modules()[name].eval() for name in modules}
        )
        self.weight = torch.nn.Parameter(torch.randn(OUT, IN))
        self.row = torch.nn.Parameter(torch.randn(OUT))

    def forward(self, x):
        modes = {"train": self.trained, "eval": self.evaluated}
        results = {f"{key} {n}": m(x) for key, modules in modes.items() for n, m in modules.items()}
        with torch.autocast("cpu", dtype=torch.bfloat16):
            results |= {f"autocast {n}": m(x) for n, m in self.evaluated.items()}
        results["gate"] = gate(x, self.weight, bias=self.row, factor=x[:, :1])
        results["normalize"] = normalize(x, self.weight, residual=self.row)
        return results


def describe_public() -> dict:
    schemas = (ROOT / "cutlass_fused/schemas.txt").read_text().splitlines()
    headers = ROOT / "include/cutlass_fused"
    folders = [ROOT / name for name in ("cutlass_fused", "src", "include")]
    files = [path for folder in folders for path in folder.rglob("*.*p*") if path.is_file()]
    words = [path.read_text() for path in files if path.suffix in (".py", ".cpp", ".hpp")]
    read = r"(?:environ\S*|getenv|VARIABLE = )\W*\"(CUTLASS_FUSED_[A-Z_]+)\""
    return {
        "names": {
            "cutlass_fused": sorted(cutlass_fused.__all__),
            "cutlass_fused.nn": sorted(nn.__all__),
            "cutlass_fused.functional": sorted(functional.__all__),
        },
        "submodules": sorted(
            str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
            for path in (ROOT / "cutlass_fused").rglob("*.py")
            if not re.search(r"/_(?!_init__)", str(path))
        ),
        "schemas": [line for line in schemas if line and not line.startswith("#")],
        "headers": sorted(path.name for path in headers.glob("*.hpp")),
        "environment": sorted(set(re.findall(read, "\n".join(words)))),
    }


def forget_places(program: torch.export.ExportedProgram) -> None:
    """Which files each node comes from: by paths of the machine that this runs on."""
    for module in program.graph_module.modules():
        for node in getattr(module, "graph", program.graph).nodes:
            node.meta.pop("stack_trace", None)


def main(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    version = cutlass_fused.__version__
    modules, x = build_modules(), torch.randn(6, IN, generator=torch.Generator().manual_seed(1))
    before = {name: module.state_dict() for name, module in modules.items()}
    before = torch.utils._pytree.tree_map(torch.clone, before)
    whole = {"modules": modules, "states": before, "x": x}
    # Pickled before they are called: their statistics are those of `states`.
    path = folder / f"modules-{version}.pt"
    torch.save(whole, path)
    with torch.no_grad():
        outputs = {name: module(x) for name, module in modules.items()}
    states = {name: module.state_dict() for name, module in modules.items()}
    torch.save({"outputs": outputs, "states": states}, folder / f"results-{version}.pt")

    model = All(build_modules())
    batch = torch.export.Dim("batch", min=2, max=64)
    with torch.no_grad():
        program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
        forget_places(program)
        torch.export.save(program, folder / f"program-{version}.pt2")
        outputs = model(x)
    torch.save(outputs, folder / f"program-results-{version}.pt")
    text = json.dumps(describe_public(), indent=1)
    (folder / f"public-{version}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
