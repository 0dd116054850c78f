"""Installs a wheel into fresh environments, and runs installed.py in each, outside of the checkout.

    PYTHONPATH=src python -m build_system.wheel.matrix WHEEL python3.10=2.10.0 python3.13=2.15.0

Each argument behind the wheel is an interpreter and the torch to install: a version, a wheel's path
or an address. It prints the rows of a table, and fails if a check does. An environment with a torch
of CUDA takes some 5 GB, and is removed before the next one is made. uv installs where it is on
PATH, else pip.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKS = Path(__file__).with_name("installed.py")
HEAD = (
    "| Python | torch | CUDA of torch | library | `fp32_matmul` | checks |\n" + "| --- " * 6 + "|"
)


def make_environment(folder: Path, python: str, packages: list[str]) -> Path:
    """Returns its interpreter."""
    inside = folder / "bin/python"
    uv = shutil.which("uv")
    if uv is not None:
        run([uv, "venv", "--quiet", "--python", python, str(folder)])
        run([uv, "pip", "install", "--quiet", "--python", str(inside), *packages])
    else:
        run([python, "-m", "venv", str(folder)])
        run([str(inside), "-m", "pip", "install", "--quiet", *packages])
    return inside


def run(command: list[str], **options) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **options)
    return done.stdout


def check(wheel: Path, python: str, torch: str) -> dict:
    wanted = torch if torch.endswith(".whl") or "://" in torch else f"torch=={torch}"
    # Nothing of the checkout is seen: neither its folder nor what the caller has on the path.
    hidden = ("PYTHONPATH", "CUTLASS_FUSED_LIBRARY")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    with tempfile.TemporaryDirectory() as folder:
        # setuptools: Inductor of torch 2.10 imports it, and does not depend on it.
        inside = make_environment(
            Path(folder, "env"), python, [wanted, "numpy", "setuptools", str(wheel)]
        )
        shutil.copy(CHECKS, folder)
        said = run([str(inside), CHECKS.name], cwd=folder, env=environment)
        row = json.loads(said.splitlines()[-1])
        if not row["folder"].startswith(folder):
            raise RuntimeError(
                f"the checks ran on {row['folder']}, which is not what was installed"
            )
    return row


def format_row(row: dict) -> str:
    passed = row["checks"] - len(row["failed"])
    checks = f"{passed} of {row['checks']} pass"
    library = "loads" if row["library"] == "loaded" else f"not loaded: {shorten(row['library'])}"
    switch = row["switch"].partition(":")[0]
    cells = (row["python"], row["torch"], row["cuda"] or "none", library, switch, checks)
    return f"| {' | '.join(cells)} |"


def shorten(reason: str) -> str:
    """What the loader misses; else its last words, without the paths before them."""
    missed = re.search(r"(\w+)\.so[.0-9]*: cannot open shared object file", reason)
    if missed is not None:
        return f"there is no {missed[1]}"
    return reason.splitlines()[0].rpartition("cannot be loaded: ")[2].rpartition("/")[2]


def main(wheel: str, *pairs: str) -> None:
    print(HEAD, flush=True)
    failed = False
    for pair in pairs:
        row = check(Path(wheel).resolve(), *pair.split("=", 1))
        print(format_row(row), flush=True)
        for name in row["failed"]:
            print(f"FAILED with torch {row['torch']}: {name}", file=sys.stderr)
        failed = failed or bool(row["failed"])
    sys.exit(failed)


if __name__ == "__main__":
    main(*sys.argv[1:])
