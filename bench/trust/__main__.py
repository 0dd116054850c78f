"""python -m bench.trust PART: random calls, sanitizers, long runs, and what all of them found.

python -m bench.trust fuzz --seed 1 --cases 20000 --seconds 500 --out build/trust
python -m bench.trust fuzz --only 1:4711
python -m bench.trust sanitize --tool memcheck --seconds 500 --out build/trust
python -m bench.trust stock --tool racecheck --out build/trust
python -m bench.trust soak --part replays --out build/trust
python -m bench.trust merge --out build/trust --to bench/results/h100
"""

import importlib
import sys

from bench.measure.results import InvalidResult

PARTS = ("fuzz", "sanitize", "stock", "soak", "merge")


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in PARTS:
        print(f"{__doc__}\nPART must be one of {', '.join(PARTS)}", file=sys.stderr)
        return 2
    try:
        return importlib.import_module(f"bench.trust.{arguments[0]}").main(arguments[1:])
    except InvalidResult as reason:  # of a piece that an earlier run has left
        raise SystemExit(str(reason)) from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
