"""Links epilogues ahead of time, for machines without NVRTC: no GPU is needed.

    python -m cutlass_fused.build_epilogues models.tails:gated --operands bias=N,gate=MN \\
        --precision bf16 --arch 9.0 --shape 1024x8192x8192 --out linked

An epilogue is named by its module, as `module:name`, or is one of the common ones, as `gelu`. Each
operand is what it is called with: N, one value for each column; M, one for each row; MN, one for
each element; scalar, a tensor of no dimension; or a number. Its dtype is that of x, unless it
stands behind a colon: bias=N:float32. Without --shape every tile is linked, and matrices may have
any size (an M x N operand rows of whole 16 bytes); with it those that serve such products on common
GPUs, and other sizes may find none.

On the other machine CUTLASS_FUSED_CACHE_DIR names the folder, or it lies beside the library, as
cutlass_fused/linked. A program that is not found there runs by PyTorch's ops.
"""

import argparse
import collections
import importlib
import itertools
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

from .. import _library
from .._library import read_link_info
from ..programs.common import FUNCTIONS, common_epilogues
from ..programs.epilogue import Epilogue
from .calls import PRECISIONS, SHAPES, Call, Operand, link, record_calls


def find(name: str) -> Epilogue:
    """By `module:name`, or one of the common ones. Raises ValueError where there is none."""
    module, colon, path = name.partition(":")
    if not colon:
        if name not in FUNCTIONS:
            raise ValueError(f"{name} must be module:name, or one of {', '.join(FUNCTIONS)}")
        return common_epilogues()[name]
    if module.startswith(".") or not module:  # of which import_module makes other errors
        raise ValueError(f"{name} must be module:name, as models.tails:gated")
    try:
        found = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name}: {error}") from None
    if not callable(found):
        raise ValueError(f"{name} must be an epilogue or a function, got {type(found).__name__}")
    try:
        return found if isinstance(found, Epilogue) else Epilogue(found)
    except TypeError as error:  # a class, say
        raise ValueError(error) from None


def parse_operand(text: str) -> Operand | float | None:
    kind, colon, name = text.partition(":")
    if kind in SHAPES:
        dtype = getattr(torch, name, None) if colon else None
        if colon and dtype not in {each for each, _ in PRECISIONS.values()}:
            raise ValueError(f"a dtype must be float16, bfloat16 or float32, got {name}")
        return Operand(kind, dtype)
    for read in (int, float):  # a whole number may be another program than the same as a float
        try:
            return read(text)
        except ValueError:
            continue
    if text == "None":
        return None
    words = ", ".join(SHAPES)
    raise ValueError(f"an operand must be {words}, None or a number, got {text}")


def choose_operands(epilogue: Epilogue, given: dict) -> dict:
    """Those that the epilogue has. Raises ValueError where one of its own is not given."""
    known = epilogue.traced.operands
    for name, is_required in known.items():
        if is_required and name not in given:
            raise ValueError(f"{epilogue.name}: --operands must have {name}, as in {name}=N")
    return {name: each for name, each in given.items() if name in known}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m cutlass_fused.build_epilogues",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("epilogues", nargs="+", metavar="module:name")
    parser.add_argument("--operands", default="", metavar="NAME=KIND,...", help="as above")
    parser.add_argument(
        "--precision",
        nargs="+",
        choices=PRECISIONS,
        default=["ieee"],
        help="of fp32 matrices ieee or tf32, or a dtype of 16 bits; default ieee",
    )
    parser.add_argument("--out-dtype", metavar="DTYPE", help="out_dtype of calls")
    parser.add_argument(
        "--gradients",
        nargs="?",
        const="*",
        metavar="NAME,...",
        help="for training: of x, weight and these operands, or of all",
    )
    parser.add_argument(
        "--arch", nargs="+", help="compute capabilities, as 9.0; default that of the GPU or all"
    )
    tiles = parser.add_mutually_exclusive_group()
    tiles.add_argument("--shape", nargs="+", metavar="MxNxK", help="for products of these sizes")
    tiles.add_argument("--all-tiles", action="store_true", help="for all sizes, which is default")
    parser.add_argument(
        "--out", type=pathlib.Path, help="a folder that others may read; default the cache"
    )
    parsed = parser.parse_args(arguments)
    try:
        _complete(parsed)
    except ValueError as error:
        parser.error(str(error))
    return parsed


def _complete(parsed: argparse.Namespace) -> None:
    pairs = [each.partition("=") for each in parsed.operands.split(",") if each]
    operands = {name: parse_operand(text) for name, _, text in pairs}
    parsed.epilogues = [find(name) for name in parsed.epilogues]
    known = {name for epilogue in parsed.epilogues for name in epilogue.traced.operands}
    trained = parsed.gradients.split(",") if parsed.gradients not in (None, "*") else []
    for name in (*operands, *trained):
        if name not in known:
            raise ValueError(f"operands must be of {', '.join(sorted(known))}, got {name}")
    parsed.operands = [choose_operands(epilogue, operands) for epilogue in parsed.epilogues]
    if parsed.gradients is not None:
        is_all = parsed.gradients == "*"
        parsed.gradients = [
            name
            for name, each in operands.items()
            if isinstance(each, Operand) and (is_all or name in trained)
        ]
    if parsed.out_dtype is not None:
        parsed.out_dtype = parse_operand(f"N:{parsed.out_dtype}").dtype
    parsed.arch = [_parse_arch(arch) for arch in parsed.arch or _list_archs()]
    parsed.shape = [_parse_shape(shape) for shape in parsed.shape or ()] or [None]


def _parse_arch(text: str) -> int:
    major, dot, minor = text.rstrip("a").partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal() and len(minor) == 1):
        raise ValueError(f"a compute capability must be as 9.0, got {text}")
    return 10 * int(major) + int(minor)


def _parse_shape(text: str) -> tuple[int, int, int]:
    sizes = text.split("x")
    if len(sizes) != 3 or not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise ValueError(f"a shape must be MxNxK, as 1024x8192x4096, got {text}")
    return tuple(map(int, sizes))


def _list_archs() -> list[str]:
    if torch.cuda.is_available():
        return ["{}.{}".format(*torch.cuda.get_device_capability())]
    build = _library.read_build_info()
    return [] if build is None else build["archs"]


class Work(NamedTuple):
    """A call to be linked for a compute capability, and perhaps for M, N and K."""

    epilogue: str
    call: Call
    arch: int
    sizes: tuple[int, int, int] | None

    def __str__(self) -> str:
        return f"{self.epilogue}, {self.arch / 10}"


def _list_work(parsed: argparse.Namespace) -> Iterator[Work]:
    for epilogue, operands in zip(parsed.epilogues, parsed.operands, strict=True):
        modes = {"": None}
        if parsed.gradients is not None:
            modes[" in training"] = [name for name in parsed.gradients if name in operands]
        seen = set()
        for precision, sizes, mode in itertools.product(parsed.precision, parsed.shape, modes):
            trained = modes[mode]
            calls = record_calls(epilogue, operands, precision, sizes, trained, parsed.out_dtype)
            for call, arch in itertools.product(calls, parsed.arch):
                if (call, arch, sizes) not in seen:
                    yield Work(f"{epilogue.name}{mode}, {precision}", call, arch, sizes)
                seen.add((call, arch, sizes))
        if not seen:
            print(f"{epilogue.name}: it runs by PyTorch's ops: there is nothing to link")


def _let_others_read(kernels: pathlib.Path) -> None:
    """As the process's umask has it: files of the cache are the user's alone. None that others may
    write to is read."""
    mask = os.umask(0)
    os.umask(mask)
    for path in (kernels, *kernels.iterdir()):
        path.chmod((0o755 if path.is_dir() else 0o644) & ~mask)


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parse(arguments)
    if not _library.is_loaded():
        print(f"the compiled library must be loaded, got: {_library.load_error()}", file=sys.stderr)
        return 1
    if parsed.out is not None:
        try:
            parsed.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            print(f"--out must be a folder: {error}", file=sys.stderr)
            return 1
        os.environ["CUTLASS_FUSED_CACHE_DIR"] = str(parsed.out)
    answers = set()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            all_work = [(each, pool.submit(link, *each[1:])) for each in _list_work(parsed)]
            for work, done in all_work:
                for answer in done.result():
                    # Several shapes may have the same kernel.
                    found = (work.call, work.arch, answer)
                    if found not in answers:
                        print(f"{work}: {answer}", flush=True)
                    answers.add(found)
        except (RuntimeError, TypeError) as error:  # of a function or an argument
            print(error, file=sys.stderr)
            return 1
    if parsed.out is not None and (parsed.out / "kernels").is_dir():
        _let_others_read(parsed.out / "kernels")
    words = collections.Counter(answer.partition(" ")[0] for *_, answer in answers)
    print(f"{_find_folder()}: {words['new']} kernels linked, {words['kept']} were there")
    # Where one within a product is refused, the program runs behind it.
    lost = ("failed", "refused pointwise")
    return int(any(answer.startswith(lost) for *_, answer in answers))


def _find_folder() -> str:
    cache = read_link_info()["cache"]
    return "there is no folder" if cache is None else cache["folder"]
