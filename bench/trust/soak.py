"""Long runs: threads that share modules, replays of one graph, and a soak.

python -m bench.trust soak --part threads --seconds 60 --out build/trust
python -m bench.trust soak --part replays --count 100000 --out build/trust
python -m bench.trust soak --part soak --seconds 480 --out build/trust
"""

import argparse
import json
import pathlib

from bench.measure.options import parse_count, parse_seconds

from . import long_runs, pieces

PARTS = ("threads", "replays", "soak")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.trust soak", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--part", choices=PARTS, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the pieces")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=parse_seconds, default=60.0, help="of threads and soak")
    parser.add_argument("--count", type=parse_count, default=100_000, help="of replays")
    parser.add_argument("--threads", type=parse_count, default=8)
    parser.add_argument("--commit", help="what is tested; default: the commit of this checkout")
    options = parser.parse_args(arguments)
    if options.part == "replays" and options.device == "cpu":
        parser.error("a CPU has no graphs to replay")
    return options


def run(options: argparse.Namespace) -> dict:
    if options.part == "threads":
        return long_runs.run_threads(options.device, options.threads, options.seconds)
    if options.part == "replays":
        return long_runs.run_replays(options.count)
    return long_runs.run_soak(options.device, options.seconds)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    meta = pieces.describe(options.device, options.commit)
    found = run(options)
    path = pieces.name_piece(options.out, "soak", options.part)
    pieces.write_piece(path, {"part": "soak", "run": options.part, "meta": meta, **found})
    print(json.dumps(found, indent=1))
    return int(bool(found["wrong"]))
