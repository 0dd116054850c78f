"""Lays a wheel out as a repository of the `kernels` hub, from which `kernels.get_kernel` loads it.

    PYTHONPATH=src python -m build_system.wheel.hub WHEEL OUT --torch 2.11 --torch stable

The package is in OUT/build/<variant>, as a folder that is imported under the name of the namespace
of its ops (op_namespace.py): so two versions can be in one process. metadata.json there has that
name, the GPUs and a sum of each file. Older loaders look for a package in the folder, and find one.
The hub takes one variant for each version of torch, or one for all of them: "stable".
"""

import argparse
import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from ..paths import PACKAGE
from ..torch_library import OLDEST
from .op_namespace import USUAL, read_file

# What a loader of the hub does, in a process of its own.
IMPORT = """\
import importlib.util, json, sys
import torch
name, file = sys.argv[1:]
spec = importlib.util.spec_from_file_location(name, file)
module = sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
library = module._library
has_ops = hasattr(getattr(torch.ops, name), "linear")
print(json.dumps([has_ops, library.load_error(), library.read_build_info(), torch.__version__]))
"""
# The package in the folder above, whatever that is called.
COMPATIBLE = '''\
"""For loaders that look for a package within the folder of a variant."""

import importlib.util
import sys
from pathlib import Path

_file = Path(__file__).resolve().parent.parent / "__init__.py"
_module = sys.modules.get("{id}")
if _module is None:
    _spec = importlib.util.spec_from_file_location("{id}", _file)
    _module = sys.modules["{id}"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
__all__ = _module.__all__


def __getattr__(name):
    return getattr(_module, name)
'''
CARD = """\
---
license: bsd-3-clause
library_name: kernels
tags:
- kernels
- cuda
---

Fused CUTLASS kernels for PyTorch: Linear with what follows it.

    from kernels import get_kernel

    cutlass_fused = get_kernel("OWNER/cutlass-fused", version={version})
"""


def read_package(folder: Path) -> tuple[dict | None, str]:
    """What the library in it says of its build, None without one; and the version of torch. The
    package is imported as the hub does it."""
    name = read_file(folder)
    command = [sys.executable, "-B", "-c", IMPORT, name, str(folder / "__init__.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder.parent)
    if done.returncode != 0:
        raise RuntimeError(f"{folder} cannot be imported as {name}:\n{done.stderr}")
    has_ops, error, build, torch = json.loads(done.stdout.splitlines()[-1])
    if not has_ops:
        raise RuntimeError(f"{folder}: there must be ops in torch.ops.{name}")
    if any(folder.glob("lib*.so")) and build is None:
        raise RuntimeError(f"{folder}: the library must be loaded to be described, got: {error}")
    return build, torch


def name_variant(torch: str, build: dict | None, machine: str = "x86_64") -> str:
    """torch: "2.11", or "stable": the stable ABI of the oldest that the library runs with."""
    if torch == "stable":
        framework = f"torch-stable-abi{OLDEST[0]}{OLDEST[1]}"
    else:
        major, minor = re.match(r"(\d+)\.(\d+)", torch).groups()
        framework = f"torch{major}{minor}-cxx11"
    cuda = "cu" + build["cuda"].replace(".", "") if build else "cpu"
    return f"{framework}-{cuda}-{machine}-linux"


def list_archs(build: dict) -> list[str]:
    """As the hub writes them: "8.0+PTX" is one whose PTX newer GPUs compile."""
    ptx = build["ptx"]
    return [f"{arch}+PTX" if arch == ptx else arch for arch in build["archs"]]


def sum_files(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = {}
    for path in files:
        digest = hashlib.sha256(path.read_bytes()).digest()
        sums[path.relative_to(folder).as_posix()] = base64.b64encode(digest).decode()
    return sums


def write_variant(folder: Path, build: dict | None, version: int) -> None:
    """Beside the package in this folder: what is for the hub alone."""
    name = read_file(folder)
    compatible = folder / PACKAGE / "__init__.py"
    compatible.parent.mkdir()
    compatible.write_text(COMPATIBLE.format(id=name))
    backend = {"type": "cuda", "archs": list_archs(build)} if build else {"type": "cpu"}
    metadata = {
        "name": str(PACKAGE).replace("_", "-"),
        "id": name,
        "version": version,
        "license": "BSD-3-Clause",
        "python-depends": [],
        "backend": backend,
        "digest": {"algorithm": "sha256", "files": sum_files(folder)},
    }
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")


def lay_out(wheel: Path, out: Path, torch: list[str], version: int = 0) -> list[Path]:
    """Returns the folders of the variants: of these versions of torch, without any of the one that
    is here. What they held before is removed."""
    first = out / "build" / "new"
    shutil.rmtree(first, ignore_errors=True)
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            top, _, rest = name.partition("/")
            is_licence = "/licenses/" in name
            if not rest or (top != str(PACKAGE) and not is_licence):
                continue
            path = out / Path(name).name if is_licence else first / rest
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(packed.read(name))
    if read_file(first) == USUAL:
        raise ValueError(f"{wheel.name}: its ops must have a namespace of their own, got {USUAL}")
    build, here = read_package(first)
    variants = []
    for each in torch or [here]:
        variant = out / "build" / name_variant(each, build)
        shutil.rmtree(variant, ignore_errors=True)
        shutil.copytree(first, variant, ignore=shutil.ignore_patterns("__pycache__"))
        write_variant(variant, build, version)
        variants.append(variant)
    shutil.rmtree(first)
    (out / "README.md").write_text(CARD.format(version=version))
    return variants


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m build_system.wheel.hub")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--torch", action="append", default=[], metavar="VERSION|stable")
    parser.add_argument("--version", type=int, default=0, help="of the kernel on the hub")
    given = parser.parse_args()
    for variant in lay_out(given.wheel, given.out, given.torch, given.version):
        print(variant)


if __name__ == "__main__":
    main()
