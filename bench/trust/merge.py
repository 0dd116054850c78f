"""All pieces of one library as one file of results, and the table of the document.

    python -m bench.trust merge --out build/trust --to bench/results/h100

A row is of a part: fuzz with its seed, sanitize and stock with their tool, soak with its run. It
says when it ran, of which commit, and which library it had by the hash, one for all rows. What was
found wrong stays so however often the same code runs again, be it of a later commit. The page names
what did not run.
"""

import argparse
import collections
import json
import pathlib
import re
from collections.abc import Iterable

from bench.measure.machine import ROOT
from bench.measure.results import META, InvalidResult

from . import pieces, sanitize, soak
from .fuzz import DIED, OUT_OF_MEMORY
from .mended import MENDED

FILE, PAGE = "trust.json", ROOT / "docs/reliability.md"
STAY = ("rejected", "raised", "canary", DIED)
FAILURES = (*STAY, OUT_OF_MEMORY)
# What a full run has at least: random calls, and such of more than 2^33 products.
CASES, CASES_BEYOND = 20_000, 100
# And long runs, each by its figure.
LEAST = {"threads": ("threads", 8), "replays": ("replays", 100_000), "soak": ("seconds", 480)}
BLOCK = re.compile(r"(<!-- results: trust -->\n).*?(<!-- end -->)", re.DOTALL)
ONE = ("gpu", "cuda", "torch", "library")
# In the order in which a row is written.
KEYS = {
    "fuzz": ("suite", "part", "date", "commit", "library", "sources", "seed", "settings", "cases")
    + ("canaries", "verdicts", "failures", "seconds"),
    "sanitize": ("suite", "part", "date", "commit", "library", "tool", "single", "planted")
    + ("units", "right", "errors", "kernels", "warnings", "broke", "not_right", "left", "seconds"),
    "stock": ("suite", "part", "date", "commit", "library", "tool", "right", "errors", "kernels")
    + ("broke", "no_answer", "seconds"),
    "soak": ("suite", "part", "date", "commit", "library", "run", "seconds", "wrong", "figures"),
    "mended": ("suite", "part", "found", "by", "test"),
}
PARTS = KEYS.keys() - {"mended"}


def describe(part: str, members: list[dict]) -> dict:
    """What rows of all parts say: the last day, and commits, where there were several."""
    metas = [piece["meta"] for piece in members]
    commits = ",".join(dict.fromkeys(meta["commit"] for meta in metas))
    head = {"suite": "trust", "part": part, "date": max(meta["date"] for meta in metas)}
    return head | {"commit": commits, "library": metas[0]["library"]}


def is_failure(told: dict) -> bool:
    """One that stays: memory may be there the next time."""
    return told["verdict"] in STAY


def merge_fuzz(members: list[dict]) -> dict:
    """Pieces of one seed. A number that was tried again counts as it was judged last, but for a
    failure of the same code."""
    told: dict[int, dict] = {}
    failed: dict[int, str] = {}  # by number, of which code
    done: set[int] = set()
    for piece in members:
        code, numbers = piece["meta"]["code"], pieces.list_numbers(piece["numbers"])
        new = {each["number"]: each for each in piece["told"]}
        if not new.keys() <= numbers:
            raise InvalidResult(f"a piece of seed {piece['seed']} tells of cases that it has not")
        again = {number for number in numbers if failed.get(number) != code}
        told = {number: each for number, each in told.items() if number not in again}
        told |= {number: each for number, each in new.items() if number in again}
        failed |= {number: code for number in again & new.keys() if is_failure(new[number])}
        done |= numbers
    verdicts = collections.Counter(each["verdict"] for each in told.values())
    verdicts["right"] = len(done) - len(told)
    failures = [each for _, each in sorted(told.items()) if each["verdict"] in FAILURES]
    return describe("fuzz", members) | {
        "sources": members[0]["meta"]["sources"],
        "seed": members[0]["seed"],
        "settings": members[0]["settings"],
        "cases": len(done),
        "canaries": sum(piece["canaries"] for piece in members),
        "verdicts": dict(sorted(verdicts.items())),
        "failures": failures,
        "seconds": round(sum(piece["seconds"] for piece in members), 1),
    }


def merge_sanitize(members: list[dict]) -> dict:
    """Pieces of one tool. A unit that ran again counts as it ended last, but for errors that were
    found in the same code."""
    units: dict[str, dict] = {}
    codes: dict[str, str] = {}
    planted: dict[str, int] = {}
    missing = None
    for piece in members:
        code = piece["meta"]["code"]
        for name, unit in piece["units"].items():
            if codes.get(name) != code or units[name]["verdict"] != "found":
                units[name], codes[name] = unit, code
        planted |= {name: outcome["errors"] for name, outcome in piece["planted"].items()}
        if (left := piece.get("missing")) is not None:
            # Each run tells what no unit that it knows of has launched.
            missing = left if missing is None else [name for name in missing if name in left]
    where: collections.Counter = collections.Counter()
    warnings: collections.Counter = collections.Counter()
    for unit in units.values():
        where.update(unit["kernels"])
        warnings.update(unit.get("warnings", {}))
    launched: dict = {"launched": len(where)}
    if missing is not None:
        launched["missing"] = missing
    is_cover = members[0]["tool"] == sanitize.COVER
    return describe("sanitize", members) | {
        "tool": members[0]["tool"],
        # Units of hardly more than a call a kernel.
        "single": any(piece.get("single", False) for piece in members),
        "planted": planted,
        "units": len(units),
        "right": sum(unit["verdict"] == "right" for unit in units.values()),
        "errors": sum(unit["errors"] for unit in units.values()),
        # Of cover: how many were launched, and which none launched. Of a tool: where errors were.
        "kernels": launched if is_cover else dict(sorted(where.items())),
        "warnings": dict(sorted(warnings.items())),
        # Unit -> tiles without which it ran; none: the tool told of no tile.
        "broke": {
            name: list(unit.get("broke", ()))
            for name, unit in sorted(units.items())
            if unit.get("broke") or unit["verdict"] == "broke"
        },
        "not_right": sorted(n for n, u in units.items() if u["verdict"] not in ("right", "broke")),
        "left": sorted(set(sanitize.UNITS) - units.keys()),
        "seconds": round(sum(unit["seconds"] for unit in units.values()), 1),
    }


def merge_stock(members: list[dict]) -> dict:
    """CUTLASS's own kernels under a tool: the last run. Errors by kernel, where there were any."""
    kernels = members[-1]["kernels"]
    found = {name: each["errors"] for name, each in kernels.items() if each["errors"]}
    return describe("stock", members[-1:]) | {
        "tool": members[-1]["tool"],
        "right": sorted(name for name, each in kernels.items() if each["verdict"] == "right"),
        "errors": sum(found.values()),
        "kernels": found,
        "broke": sorted(name for name, each in kernels.items() if each["verdict"] == "broke"),
        "no_answer": sorted(
            name
            for name, each in kernels.items()
            if each["verdict"] not in ("right", "found", "broke")
        ),
        "seconds": round(sum(each["seconds"] for each in kernels.values()), 1),
    }


def merge_soak(members: list[dict]) -> dict:
    """The last run, with what earlier ones of its code found wrong."""
    last = members[-1]
    alike = [piece for piece in members if piece["meta"]["code"] == last["meta"]["code"]]
    wrong = [each for piece in alike for each in piece["wrong"]]
    figures = {k: v for k, v in last.items() if k not in ("part", "run", "meta", "wrong")}
    seconds = figures.pop("seconds", 0.0)
    found = {"run": last["run"], "seconds": seconds, "wrong": wrong, "figures": figures}
    return describe("soak", members[-1:]) | found


def merge(found: list[dict]) -> dict:
    """The content of trust.json. Raises InvalidResult where pieces are not of one library. One that
    is there twice counts once."""
    found = list({json.dumps(piece, sort_keys=True): piece for piece in found}.values())
    if not found:
        raise InvalidResult("there are no pieces to merge")
    if others := {str(piece.get("part")) for piece in found} - PARTS:
        parts = ", ".join(sorted(PARTS))
        raise InvalidResult(f"pieces must be of {parts}, got {', '.join(sorted(others))}")
    for key in ONE:
        values = {piece["meta"][key] for piece in found}
        if len(values) > 1:
            raise InvalidResult(f"pieces are of several: {key} {', '.join(sorted(values))}")
    groups: dict[tuple, list[dict]] = collections.defaultdict(list)
    for piece in found:
        which = {
            "fuzz": lambda p: (p["seed"], json.dumps(p["settings"]), p["meta"]["sources"]),
            "sanitize": lambda p: (p["tool"],),
            "stock": lambda p: (p["tool"],),
            "soak": lambda p: (p["run"],),
        }[piece["part"]](piece)
        groups[(piece["part"], *which)].append(piece)
    write = {
        "fuzz": merge_fuzz,
        "sanitize": merge_sanitize,
        "stock": merge_stock,
        "soak": merge_soak,
    }
    rows = [write[part](members) for (part, *_), members in groups.items()]
    rows += [{"suite": "trust", "part": "mended", **each._asdict()} for each in MENDED]
    last = max((piece["meta"] for piece in found), key=lambda meta: meta["date"])
    content = {"meta": {key: last[key] for key in META}, "rows": rows}
    check(content)
    return content


def check(content: dict) -> None:
    """Raises InvalidResult unless it is of the form."""
    if set(content["meta"]) != set(META):
        raise InvalidResult(f"meta: the keys must be {', '.join(META)}")
    for row in content["rows"]:
        if row.get("part") not in KEYS or tuple(row) != KEYS[row["part"]]:
            raise InvalidResult(f"row: the keys of its part must be in order, got {row}")
        if row["part"] == "fuzz" and sum(row["verdicts"].values()) != row["cases"]:
            raise InvalidResult(f"row: verdicts do not add up to the cases, in {row}")
    libraries = {row["library"] for row in content["rows"] if "library" in row}
    if len(libraries) > 1:
        raise InvalidResult(f"rows are of several libraries: {', '.join(sorted(libraries))}")


def list_missing(content: dict) -> list[str]:
    """What a full run has, and these rows have not."""
    rows = [row for row in content["rows"] if row["part"] != "mended"]
    missing = []
    cases = {False: 0, True: 0}
    for row in rows:
        if row["part"] == "fuzz":
            cases[row["settings"].get("least_products", 0) > 0] += row["cases"]
    for is_beyond, least in ((False, CASES), (True, CASES_BEYOND)):
        if cases[is_beyond] < least:
            size = " beyond 2^33" if is_beyond else ""
            missing.append(f"{least - cases[is_beyond]} of {least} random calls{size}")
    of_tool = {(row["part"], row["tool"]): row for row in rows if "tool" in row}
    for tool in (sanitize.COVER, *sanitize.TOOLS):
        row = of_tool.get(("sanitize", tool))
        if row is None:
            missing.append(tool)
            continue
        if row["left"]:
            missing.append(f"{tool} of {len(row['left'])} units")
        if kernels := row["kernels"].get("missing") if tool == sanitize.COVER else None:
            missing.append(f"{tool} of {len(kernels)} kernels")
        # What it tells of CUTLASS's own kernels says what that means.
        tells = tool in sanitize.SANITIZERS and (row["errors"] or row["warnings"] or row["broke"])
        if tells and ("stock", tool) not in of_tool:
            missing.append(f"{tool} of CUTLASS's own kernels")
    runs = {row["run"]: row for row in rows if row["part"] == "soak"}
    for run in soak.PARTS:
        figure, least = LEAST[run]
        if run not in runs:
            missing.append(run)
        elif (much := (runs[run] | runs[run]["figures"]).get(figure, 0)) < least:
            missing.append(f"{run} of {least} {figure}, but of {much:.0f}")
    return missing


def name_some(names: Iterable[str], most: int = 3) -> str:
    """The first ones, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def list_lines(content: dict) -> list[str]:
    """The rows of the document's table: what ran, how much of it, what was wrong."""
    lines = []
    for row in content["rows"]:
        if row["part"] == "fuzz":
            named = [
                f"{n} {v}" for v, n in row["verdicts"].items() if v not in ("right", *FAILURES)
            ]
            what = f"random calls, seed {row['seed']}"
            much = f"{row['cases']} cases, {row['canaries']} with canaries"
            wrong = f"{len(row['failures'])} failures" + (f" ({', '.join(named)})" if named else "")
        elif row["part"] == "sanitize":
            what = "kernels that units launch" if row["tool"] == "cover" else row["tool"]
            much = f"{row['units']} units"
            if row["tool"] == "cover":
                much += f", {row['kernels']['launched']} kernels"
                if missing := row["kernels"].get("missing"):
                    much += f"; {len(missing)} by none"
            wrong = f"{row['errors']} errors, {len(row['not_right'])} units not right"
            if row["warnings"]:
                wrong += f"; no errors: what it tells of {name_some(row['warnings'])}"
            if row["broke"]:
                tiles = sorted({tile for each in row["broke"].values() for tile in each})
                wrong += f"; it broke in {len(row['broke'])} units"
                wrong += f", over {name_some(tiles)}" if tiles else ""
        elif row["part"] == "stock":
            what = f"{row['tool']} of CUTLASS's own kernels"
            much = f"{len(row['right']) + len(row['kernels'])} kernels"
            wrong = f"{row['errors']} errors"
            if row["kernels"]:
                wrong += f", in {', '.join(row['kernels'])}"
            if row["broke"]:
                wrong += f"; it broke in {', '.join(row['broke'])}"
            if row["no_answer"]:
                wrong += f"; {len(row['no_answer'])} gave no answer"
        elif row["part"] == "soak":
            what = {"threads": "threads on streams", "replays": "replays of a graph"}.get(
                row["run"], "soak"
            )
            counts = [f"{row['figures'][k]} {k}" for k in ("calls", "replays", "steps", "threads")
                      if k in row["figures"]]  # fmt: skip
            much, wrong = ", ".join(counts), f"{len(row['wrong'])} faults"
        else:
            continue
        lines.append(f"| {what} | {row['date']} | {much} | {wrong} | {row['seconds']:.0f} |")
    return lines


def write_table(content: dict) -> str:
    meta = content["meta"]
    mended = sum(row["part"] == "mended" for row in content["rows"])
    library = next((row["library"] for row in content["rows"] if "library" in row), "none")
    missing = list_missing(content)
    kind = "run, which is not full" if missing else "full run"
    left = f" Did not run: {', '.join(missing)}." if missing else ""
    head = (
        f"The last {kind} (commit {meta['commit'][:7]}, {meta['date']}, one NVIDIA "
        f"{meta['gpu'].upper()}, torch {meta['torch']}, library {library}). Found and mended "
        f"before: {mended}.{left}\n\n"
        "| what | day | how much | wrong | seconds |\n| --- | --- | --- | --- | --- |\n"
    )
    return "\n" + head + "\n".join(list_lines(content)) + "\n\n"


def fill(text: str, content: dict | None) -> str:
    """The page with the table; without results the block is empty."""
    table = "" if content is None else write_table(content)
    return BLOCK.sub(lambda block: block[1] + table + block[2], text)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.trust merge", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the pieces")
    parser.add_argument("--to", type=pathlib.Path, required=True, help="folder of the results")
    parser.add_argument("--page", type=pathlib.Path, default=PAGE, help="document with the table")
    options = parser.parse_args(arguments)
    try:
        content = merge(pieces.read_pieces(options.out))
        if (gpu := content["meta"]["gpu"]) != options.to.name:
            raise InvalidResult(f"--to must be the folder of {gpu}, got {options.to}")
    except InvalidResult as reason:
        raise SystemExit(str(reason)) from None
    rows = ",\n".join(json.dumps(row, allow_nan=False) for row in content["rows"])
    text = f'{{\n"meta": {json.dumps(content["meta"])},\n"rows": [\n{rows}\n]\n}}\n'
    try:
        page = options.page.read_text(encoding="utf-8")
    except OSError as reason:
        raise SystemExit(f"--page must be the document with the table: {reason}") from None
    options.to.mkdir(parents=True, exist_ok=True)
    (options.to / FILE).write_text(text, encoding="utf-8")
    options.page.write_text(fill(page, content), encoding="utf-8")
    print("\n".join(list_lines(content)))
    return 0
