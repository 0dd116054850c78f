"""The options that the benches share."""

import argparse
import functools
import math
import pathlib
from collections.abc import Sequence

from .results import UNSTEADY


def parse_words(allowed: Sequence[str], text: str) -> list[str]:
    """The words of "a,b", in the order of the table that allows them, each once."""
    words = text.split(",")
    if unknown := [word for word in words if word not in allowed]:
        choices = ", ".join(allowed)
        raise argparse.ArgumentTypeError(f"must be among {choices}, got {', '.join(unknown)}")
    return [word for word in allowed if word in words]


def parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a positive integer, got {text!r}")
    return int(text)


def parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:  # nor NaN
        raise argparse.ArgumentTypeError(f"must be a number of seconds, 0 or more, got {text!r}")
    return seconds


def parse_sizes(text: str) -> list[tuple[int, int, int]]:
    """The (M, N, K) of "64x512x256,1x1000x2048"."""
    sizes = [size.split("x") for size in text.split(",")]
    if wrong := ["x".join(numbers) for numbers in sizes if len(numbers) != 3]:
        raise argparse.ArgumentTypeError(f"must be MxNxK, got {', '.join(wrong)}")
    return [tuple(map(parse_count, numbers)) for numbers in sizes]


def add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes",
        type=parse_sizes,
        default=[],
        metavar="MxNxK,...",
        help="of your own layers, instead of the suite's",
    )


def add_words(
    parser: argparse.ArgumentParser,
    option: str,
    allowed: Sequence[str],
    default: Sequence[str] | None = None,
    told: str | None = None,
) -> None:
    """An option that takes words separated by commas; without `default` all of them. `told` is what
    the help says of a default that depends on the case, and is empty itself."""
    allowed = list(allowed)
    default = allowed if default is None else list(default)
    parser.add_argument(
        option,
        type=functools.partial(parse_words, allowed),
        default=default,
        metavar="A,B",
        help=f"among {','.join(allowed)}; default: {told or ','.join(default)}",
    )


def build_parser(program: str, description: str, rounds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the results")
    parser.add_argument("--commit", help="what is measured; default: the commit of this checkout")
    # A command that is repeated goes on with --budget, and begins anew with the other two.
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--again", action="store_true", help="measure also what is there already")
    which.add_argument(
        "--unsteady",
        action="store_true",
        help=f"measure also cases where a median is over {UNSTEADY} times the least",
    )
    which.add_argument(
        "--budget",
        type=parse_count,
        metavar="SECONDS",
        help="start no case that would end later; the same command goes on",
    )
    parser.add_argument("--rounds", type=parse_count, default=rounds, help=f"default: {rounds}")
    return parser
