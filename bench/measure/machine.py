"""The machine that a bench runs on, and what its result file says of it."""

import argparse
import datetime
import pathlib
import subprocess

import torch

from cutlass_fused import comparison

from .results import InvalidResult, ResultFile

ROOT = pathlib.Path(__file__).parents[2]

# Brands in front of a name.
BRANDS = ("NVIDIA", "GeForce", "Tesla", "Quadro")


def check_gpu() -> None:
    """Raise SystemExit, with the reason, where the kernels cannot run."""
    if not torch.cuda.is_available():
        raise SystemExit("the benches need a CUDA GPU: torch.cuda.is_available() is False")
    if obstacle := comparison.find_obstacle():
        raise SystemExit(f"the kernels cannot run on {torch.cuda.get_device_name()}: {obstacle}")


def shorten_gpu_name(name: str) -> str:
    """The name without brands, up to and with the first word that has a digit: h200, rtx4090."""
    words = [word for word in name.replace("-", " ").split() if word not in BRANDS]
    for index, word in enumerate(words):
        if any(letter.isdigit() for letter in word):
            words = words[: index + 1]
            break
    return "".join(words).lower()


def find_commit() -> str:
    """The commit of this checkout; raises SystemExit where there is none, or where tracked files
    differ from it: the result would name a commit that it does not come from."""
    commit = _ask(["git", "rev-parse", "--verify", "HEAD"])
    if commit is None:
        raise SystemExit("this is no git checkout with a commit: say --commit COMMIT")
    if _ask(["git", "status", "--porcelain", "--untracked-files=no"]):
        raise SystemExit("tracked files differ from the commit: commit them or say --commit COMMIT")
    return commit


def resolve_commit(commit: str) -> str:
    """All digits of it where this checkout knows it; elsewhere, or without git, as it is given."""
    return _ask(["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]) or commit


def describe_date() -> str:
    """Today, by UTC."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def describe_machine(commit: str | None) -> dict[str, str]:
    """The `meta` of a result file."""
    driver = _ask(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"])
    return {
        "gpu": shorten_gpu_name(torch.cuda.get_device_name()),
        "driver": driver or "unknown",
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "commit": resolve_commit(commit) if commit else find_commit(),
        "date": describe_date(),
    }


def open_results(suite: str, options: argparse.Namespace) -> ResultFile:
    """The file that the options name. Raises SystemExit, with the reason, if nothing can run."""
    check_gpu()
    try:
        return ResultFile(options.out, suite, describe_machine(options.commit), options.again)
    except InvalidResult as reason:
        raise SystemExit(str(reason)) from None


def _ask(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None
