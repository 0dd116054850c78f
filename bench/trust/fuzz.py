"""Random calls of everything that computes, judged as the tests judge theirs.

    python -m bench.trust fuzz --seed 1 --cases 20000 --seconds 500 --processes 12 --out build/trust
    python -m bench.trust fuzz --only 1:4711

The same command goes on where the last one stopped. Every case is drawn by the seed and its number
alone: --only SEED:NUMBER repeats one, with the options that the first run had.
"""

import argparse
import collections
import math
import pathlib
import time
import traceback

from bench.measure.options import add_words, parse_count, parse_seconds

from . import pieces
from .paths import add_helpers
from .workers import Died, run_each

add_helpers()

import torch  # noqa: E402
from fuzz_inputs import SMALL, Limits  # noqa: E402
from fuzz_one import FAILURES, KINDS, Found, draw_case, judge_one  # noqa: E402

OUT_OF_MEMORY, DIED = "out of memory", "died"
# A case that is right takes less than a second; linking takes seconds.
MOST_SECONDS = 180.0
WRITE_EVERY = 20.0
TOLD = 12_000  # characters of what a piece tells of one case, more than any has


def parse_only(text: str) -> tuple[int, int]:
    seed, colon, number = text.partition(":")
    if not (seed.isdecimal() and number.isdecimal() and colon):
        raise argparse.ArgumentTypeError(f"must be SEED:NUMBER, got {text!r}")
    return int(seed), int(number)


def work(pipe, seed: int, device: str, limits: Limits, kinds: tuple[str, ...]) -> None:
    """A process of run_each."""
    torch.set_num_threads(1)
    while True:
        try:
            number = pipe.recv()
        except EOFError:
            return
        is_lost = False
        try:
            found = judge_one(seed, number, device, limits, kinds)
            # A kernel that read where it must not is found by what comes next, at the latest here.
            if device == "cuda":
                torch.cuda.synchronize()
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            found = Found(OUT_OF_MEMORY, "")
        except Exception as error:
            # Of the judge, or of CUDA.
            found = Found("raised", f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        if found.verdict == "raised" and device == "cuda":
            try:
                torch.cuda.synchronize()
            except Exception:
                is_lost = True
        pipe.send(((found.verdict, found.words, found.has_canaries), not is_lost))
        if is_lost:
            return


class Tally:
    """What a run has found so far, as its piece holds it."""

    def __init__(self, options: argparse.Namespace, meta: dict) -> None:
        self.begin, self.done = time.monotonic(), set()
        self.verdicts: collections.Counter = collections.Counter()
        self.content = {
            "part": "fuzz",
            "meta": meta,
            "seed": options.seed,
            "settings": describe_settings(options),
            "canaries": 0,
            "told": [],
        }

    def add(self, number: int, verdict: str, words: str, has_canaries: bool) -> None:
        self.done.add(number)
        self.verdicts[verdict] += 1
        self.content["canaries"] += has_canaries
        if verdict != "right":
            told = {"number": number, "verdict": verdict, "what": words[:TOLD]}
            self.content["told"].append(told)

    def write(self, path: pathlib.Path) -> None:
        more = {
            "numbers": pieces.join_ranges(self.done),
            "verdicts": dict(sorted(self.verdicts.items())),
            "seconds": round(time.monotonic() - self.begin, 1),
        }
        pieces.write_piece(path, self.content | more)


def describe_settings(options: argparse.Namespace) -> dict:
    """What a case depends on beside its seed and number."""
    limits = options.limits
    return {
        "products": math.log2(limits.products),
        "numbers": math.log2(limits.numbers),
        "least_products": limits.least_products,
        "size": limits.size,
        "kinds": list(options.kinds),
    }


def find_done(folder: pathlib.Path, meta: dict, options: argparse.Namespace) -> set[int]:
    """The cases that earlier runs of this library have judged; those that found no memory are tried
    again."""
    done = set()
    for piece in pieces.read_pieces(folder, "fuzz"):
        is_same = piece["settings"] == describe_settings(options) and piece["seed"] == options.seed
        if is_same and pieces.is_alike(piece["meta"], meta):
            again = {t["number"] for t in piece["told"] if t["verdict"] == OUT_OF_MEMORY}
            done |= pieces.list_numbers(piece["numbers"]) - again
    return done


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.trust fuzz", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=parse_count, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--processes", type=parse_count, default=8)
    parser.add_argument(
        "--seconds", type=parse_seconds, default=math.inf, help="begin no case later"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--commit", help="what is tested; default: the commit of this checkout")
    parser.add_argument("--only", type=parse_only, metavar="SEED:NUMBER", help="run one, and tell")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the pieces")
    parser.add_argument(
        "--beyond", action="store_true", help="M * N * K above 2^33, up to 2^37, and nothing else"
    )
    add_words(parser, "--kinds", KINDS)
    options = parser.parse_args(arguments)
    options.kinds = tuple(options.kinds)
    options.limits = SMALL if options.device == "cpu" else Limits()
    if options.beyond:
        options.limits = Limits(products=2**37, numbers=2**28, least_products=2**33)
    if options.out is None and options.only is None:
        parser.error("--out or --only must be given")
    return options


def run_only(options: argparse.Namespace) -> int:
    seed, number = options.only
    given = (seed, number, options.device, options.limits, options.kinds)
    case, around = draw_case(*given)
    print(f"{case.kind}: {case.words}; {around}", flush=True)
    found = judge_one(*given)
    print(f"{found.verdict}{' with canaries' * found.has_canaries}: {found.words}")
    return int(found.verdict in FAILURES)


def write_line(number: int, options: argparse.Namespace) -> str:
    """The options that repeat one case of this run."""
    words = [f"--only {options.seed}:{number}"]
    if options.device != "cuda":
        words.append(f"--device {options.device}")
    if options.beyond:
        words.append("--beyond")
    if options.kinds != tuple(KINDS):
        words.append(f"--kinds '{','.join(options.kinds)}'")
    return " ".join(words)


def report(tally: Tally, options: argparse.Namespace) -> list[dict]:
    """Prints what was found; the failures."""
    failed = [told for told in tally.content["told"] if told["verdict"] in (*FAILURES, DIED)]
    total = sum(tally.verdicts.values())
    counts = ", ".join(f"{count} {verdict}" for verdict, count in tally.verdicts.most_common())
    print(f"{total} cases: {counts or 'none'}; {tally.content['canaries']} with canaries")
    for told in failed[:20]:
        line = write_line(told["number"], options)
        print(f"  {told['verdict']}, {line}: {told['what'][:500]}")
    return failed


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.only is not None:
        return run_only(options)
    meta = pieces.describe(options.device, options.commit)
    done = find_done(options.out, meta, options)
    wanted = range(options.first, options.first + options.cases)
    left = [number for number in wanted if number not in done]
    path = pieces.name_piece(options.out, "fuzz", str(options.seed))
    tally, written = Tally(options, meta), time.monotonic()
    given = (options.seed, options.device, options.limits, options.kinds)
    for number, result in run_each(
        left, work, given, options.processes, options.seconds, MOST_SECONDS
    ):
        found = (DIED, result.reason, False) if isinstance(result, Died) else result
        tally.add(number, *found)
        if time.monotonic() - written > WRITE_EVERY:
            tally.write(path)
            written = time.monotonic()
    if tally.done:
        tally.write(path)
    failed = report(tally, options)
    print(f"{len(left) - len(tally.done)} of {len(wanted)} are left")
    return int(bool(failed))
