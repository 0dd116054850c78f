"""python -m bench.readme [--results DIR]: writes the tables of the documents anew, all from DIR.

Without DIR each is from the folder that bench.plot.SHOWN names. A table stands in one of DOCUMENTS,
with the words that introduce it, between two lines: `<!-- results: NAME -->` and `<!-- end -->`.
Where its file is missing nothing does.
"""

import argparse
import pathlib
import re
import sys
from collections.abc import Callable, Sequence

from cutlass_fused.comparison.drawing import MODES

from .measure.markdown import describe_run, fill_line, format_list, format_table, join_tables
from .measure.results import PRECISIONS, InvalidResult
from .plot import (
    END_TO_END,
    EPILOGUES,
    POTENTIALS,
    Folder,
    choose_folder,
    read_real_models,
    read_rows,
)
from .plotting.accuracy import take_timed
from .plotting.accuracy_lines import tabulate_errors, tabulate_worst_ratios
from .plotting.end_to_end.chains import tabulate_chains
from .plotting.end_to_end.ratios import LOST as LOST_END_TO_END
from .plotting.end_to_end.ratios import list_lost as list_lost_models
from .plotting.end_to_end.tables import TABLES as END_TO_END_TABLES
from .plotting.end_to_end.tails import list_lost as list_lost_tails
from .plotting.end_to_end.tails import tabulate_tails
from .plotting.epilogues.tables import TABLES as EPILOGUE_TABLES
from .plotting.losses import SUITES as LOSSES
from .plotting.losses import list_lost_products
from .plotting.numbers import LABELS, format_error, format_time
from .plotting.product_means import LOST, tabulate_means
from .plotting.roofs import COPY
from .plotting.sweep_ratios import FEW_ROWS, Mean, collect_times, summarize
from .plotting.training import TABLES as TRAINING_TABLES
from .plotting.variants import (
    LAYERS,
    NAMES,
    Variants,
    find_variants,
    list_peers,
    name_case,
    take_fastest,
)

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENTS = tuple(
    ROOT / path
    for path in ("README.md", "bench/README.md", "bench/end_to_end/README.md", "docs/profiling.md")
)
BLOCK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)

# Whose operands are split.
SPLIT_PRECISIONS = ("ieee", "tf32")
# Variants of ours beside the one that is compared with the peers.
OTHERS = ("ours_uncached", "ours_sm80")


def compare_times(variants: Variants, factor: float = 1.0) -> str:
    """The times of eager and of the fastest other peer over ours; then all three."""
    ours, *others = _take_times(variants)
    text = " / ".join(format_time(factor * ms) for ms in (ours, *others))
    return f"{compare_speeds(variants)} ({text})"


def compare_speeds(variants: Variants) -> str:
    """The times of eager and of the fastest other peer over ours."""
    ours, *others = _take_times(variants)
    return f"**{' / '.join(f'{ms / ours:.2f}' for ms in others)}**"


def _take_times(variants: Variants) -> list[float]:
    """The times of ours, of eager, of the fastest other peer if there is one."""
    rows = [variants["ours"], variants["eager"], *take_fastest(list_peers(variants))]
    return [row["ms"] for row in rows]


def compare_errors(variants: Variants) -> str:
    return " / ".join(format_error(variants[name]["rel_err"]) for name in ("ours", "eager"))


def list_other_times(variants: Variants) -> str:
    """The times of ours without what is kept, and by older kernels."""
    return " / ".join(
        format_time(variants[name]["ms"]) if name in variants else "-" for name in OTHERS
    )


def list_model_cases(rows: Sequence[dict]) -> list[tuple[str, str]]:
    """(model, mode), in the order of the table: model 12, which has one mode; training; eval."""
    found = {(row["model"], row["mode"]) for row in rows}
    modes = list(MODES)
    cases = sorted(found, key=lambda case: (case[0] != "12", modes.index(case[1]), case[0]))
    # Both modes of model 12 compute the same.
    return [case for case in cases if case != ("12", "train") or ("12", "eval") not in found]


def tabulate_models(rows: Sequence[dict], compare: Callable[[Variants], str]) -> str:
    """A line for each model and mode, a column for each precision that was measured."""
    precisions = [name for name in PRECISIONS if find_variants(rows, precision=name)]
    lines = []
    for model, mode in list_model_cases(rows):
        line = [name_case(model, mode)]
        for precision in precisions:
            variants = find_variants(rows, model=model, mode=mode, precision=precision)
            line.append(compare(variants) if {"ours", "eager"} <= variants.keys() else "")
        lines.append(line)
    return format_table(["model", *(LABELS[name] for name in precisions)], lines)


def write_overview(folder: Folder) -> str:
    """The models' speed-ups alone, with what their titles leave out: the shape."""
    meta, rows = read_rows(folder, "models")
    if not rows:
        return ""
    what = "Speed-ups"
    how = "how many times faster than eager PyTorch / than the fastest other peer ours is."
    shapes = {row["model"]: " x ".join(str(row[size]) for size in "MNK") for row in rows}
    cases = [shapes[model] for model, _ in list_model_cases(rows)]
    lines = tabulate_models(rows, compare_speeds).splitlines()
    lines = [
        line.replace(" | ", f" | {cell} | ", 1)
        for line, cell in zip(lines, ("M x N x K", "---", *cases), strict=True)
    ]
    return describe_run(what, meta, how) + "\n".join(lines) + "\n"


def write_losses(folder: Folder) -> str:
    """Where a peer is faster, suite by suite."""
    texts = []
    for suite, what, how, which, list_lines in LOSSES:
        meta, rows = read_rows(folder, suite, **which)
        if lines := list_lines(rows):
            texts.append(describe_run(what, meta, how) + format_list(lines))
    return "\n".join(texts)


def write_models(folder: Folder) -> str:
    meta, rows = read_rows(folder, "models")
    if not rows:
        return ""
    how = "how many times faster than eager / than the fastest other peer ours is, and the "
    text = (
        describe_run("Times", meta, how + "milliseconds of ours / eager / that peer.")
        + tabulate_models(rows, compare_times)
        + "\nRelative L2 errors against float64 in the same run, ours / eager:\n\n"
        + tabulate_models(rows, compare_errors)
    )
    split = [row for row in rows if row["precision"] in SPLIT_PRECISIONS]
    if any(row["variant"] in OTHERS for row in split):
        what = "Milliseconds of ours where the weight is split in every call / by the kernels for "
        text += f"\n{what}compute capability 8.0:\n\n" + tabulate_models(split, list_other_times)
    return text


def write_layers(folder: Folder) -> str:
    meta, rows = read_rows(folder, "memory_bound")
    if not rows:
        return ""
    columns = [(layer, precision) for layer in LAYERS for precision in ("ieee", "bf16")]
    columns = [c for c in columns if find_variants(rows, model=c[0], precision=c[1])]
    titles = [f"{LAYERS[layer]}, {'fp32' if p == 'ieee' else p}" for layer, p in columns]
    lines = []
    for m, n in sorted({(row["M"], row["N"]) for row in rows}, key=lambda shape: shape[::-1]):
        cases = [find_variants(rows, model=c, precision=p, M=m, N=n) for c, p in columns]
        lines.append([f"{m} x {n}", *map(compare_layer, cases)])
    what = "Softmax alone, and batch norm in training"
    how = (
        "how many times faster than eager / than the fastest other peer ours is. In brackets stand "
        "our bandwidth in terabytes a second, and our bandwidth over that of a copy of the tensor "
        "in the same run. The bandwidth counts two passes over the tensor for softmax and three "
        "for batch norm, however many the kernels make."
    )
    return describe_run(what, meta, how) + format_table(["M x N", *titles], lines)


def compare_layer(variants: Variants) -> str:
    """The times of eager and of the fastest other peer over ours; TB/s of ours, of the copy's."""
    if not {"ours", "eager"} <= variants.keys():
        return ""
    ours = variants["ours"]
    others = [variants["eager"], *take_fastest(list_peers(variants))]
    ratios = " / ".join(f"{row['ms'] / ours['ms']:.2f}" for row in others)
    copy = variants.get(COPY)
    share = f", {ours['gbps'] / copy['gbps']:.0%}" if copy else ""
    return f"**{ratios}** ({1e-3 * ours['gbps']:.2f}{share})"


def write_host(folder: Folder) -> str:
    meta, rows = read_rows(folder, "host")
    if not rows:
        return ""
    how = "how many times less than eager / `torch.compile`, and the microseconds of all three."
    table = tabulate_models(rows, lambda variants: compare_times(variants, 1e3))
    return describe_run("Host time of one call at M = N = K = 64", meta, how) + table


def write_training(folder: Folder) -> str:
    meta, rows = read_rows(folder, "training", grad=True)
    tables = [(how, *tabulate(rows)) for how, tabulate in TRAINING_TABLES]
    parts = join_tables("Steps of training", meta, tables)
    if parts:
        parts += show_picture(folder, "training", POTENTIALS, "Eager PyTorch over ours: potentials")
    return "\n".join(parts)


def write_epilogues(folder: Folder) -> str:
    meta, rows = read_rows(folder, "epilogues")
    _, steps = read_rows(folder, "epilogues", grad=True)
    tables = [(how, *tabulate(rows, steps)) for how, tabulate in EPILOGUE_TABLES]
    parts = join_tables("Epilogues that users write", meta, tables)
    if parts:
        parts += show_picture(
            folder, "epilogues", EPILOGUES, "The fastest peer over ours: epilogues"
        )
    return "\n".join(parts)


def write_end_to_end(folder: Folder) -> str:
    meta, rows = read_real_models(folder)
    tables = [(how, *tabulate(rows)) for how, tabulate in END_TO_END_TABLES]
    parts = join_tables("Real models", meta, tables)
    parts += tell_lost(list_lost_models(rows))
    if parts:
        what = "The best of PyTorch over the best of ours: real models"
        parts += show_picture(folder, "end_to_end", END_TO_END, what, "../")
    return "\n".join(parts)


def tell_lost(lost: Sequence[str]) -> list[str]:
    return [fill_line(f"Every case below {LOST_END_TO_END}:") + format_list(lost)] if lost else []


def write_tails(folder: Folder) -> str:
    (meta, rows), (_, steps) = (read_rows(folder, "tails", grad=grad) for grad in (False, True))
    parts = join_tables("Small models", meta, [tabulate_tails([*rows, *steps])])
    return "\n".join([*parts, *tell_lost(list_lost_tails([*rows, *steps]))])


def write_chains(folder: Folder) -> str:
    meta, rows = read_rows(folder, "chains")
    return "\n".join(join_tables("Chains of small layers", meta, [tabulate_chains(rows)]))


def show_picture(folder: Folder, suite: str, name: str, text: str, bench: str = "") -> list[str]:
    """bench: the folder of the benches, from that of the document."""
    folder = choose_folder(folder, suite)
    is_there = (folder / name).exists()
    return [f"![{text}]({bench}results/{folder.name}/{name})\n"] if is_there else []


def write_sweep(folder: Folder) -> str:
    meta, rows = read_rows(folder, "sweep", graph=True)
    if not rows:
        return ""
    how = (
        "the time of the peers over ours, in CUDA graphs: the geometric mean over the shapes, and "
    )
    how += "the least ratio. The fastest peer of a shape is the fastest of eager, torch.compile, "
    how += "max-autotune and cuDNN that was measured there. The product alone has no bias."
    few = f"product alone, M <= {FEW_ROWS}"
    titles = ["model", "shapes", "faster of eager, torch.compile", "fastest peer", few]
    lines = []
    for (model, precision), times in collect_times(rows).items():
        name = f"{NAMES[model]}, {LABELS[precision]}"
        lines.append([name, str(len(times)), *map(describe_mean, summarize(times))])
    return describe_run("Many shapes", meta, how) + format_table(titles, lines)


def describe_mean(mean: Mean | None) -> str:
    """The mean; the worst ratio and its shape, M x N x K."""
    if mean is None:
        return ""
    where = " x ".join(map(str, mean.where))
    return f"**{mean.mean:.3f}** (least {mean.worst:.3f} at {where})"


def write_accuracy(folder: Folder) -> str:
    """The errors of the largest product by what its matrices hold, and the times for one kind."""
    meta, every = read_rows(folder, "accuracy")
    rows = take_timed(every)
    if not rows:
        return ""
    m, n, k = (rows[0][size] for size in "MNK")
    how = f"relative L2 errors against float64 of one product, {m} x {n} x {k}, by what its "
    how += "matrices hold, and the time it takes."
    table = format_table(*tabulate_errors(rows))
    return describe_run("Accuracy", meta, how) + table + tabulate_lines(every)


def tabulate_lines(rows: Sequence[dict]) -> str:
    """The worst column or row of ours over that of cuBLAS, by inputs and layout."""
    titles, lines = tabulate_worst_ratios(rows)
    if not lines:
        return ""
    what = "The largest relative L2 error of a column or a row of a product, ours over cuBLAS's, "
    what += 'under `"ieee"` / `"tf32"`: the worst of all shapes.'
    return "\n" + fill_line(what) + format_table(titles, lines)


def write_products(folder: Folder) -> str:
    meta, rows = read_rows(folder, "products", graph=True)
    titles, lines = tabulate_means(rows)
    if not lines:
        return ""
    how = "the time of cuBLAS in the same precision over ours, in CUDA graphs: the geometric mean "
    how += 'over the shapes, and in brackets the least. "kept" and "new" tell of the parts of a '
    how += "weight in fp32."
    text = describe_run("Products", meta, how) + format_table(titles, lines)
    if lost := list_lost_products(rows):
        text += "\n" + fill_line(f"Every product below {LOST}:") + format_list(lost)
    return text


def write_profile(folder: Folder) -> str:
    """The tables that `python -m bench.profile --table` printed into DIR/profile-*.txt."""
    paths = sorted(choose_folder(folder, "profile").glob("profile-*.txt"))
    texts = [path.read_text().strip("\n") for path in paths]
    return "\n".join(f"```text\n{text}\n```\n" for text in texts)


TABLES = {
    "overview": write_overview,
    "losses": write_losses,
    "models": write_models,
    "accuracy": write_accuracy,
    "sweep": write_sweep,
    "layers": write_layers,
    "host": write_host,
    "training": write_training,
    "epilogues": write_epilogues,
    "products": write_products,
    "end_to_end": write_end_to_end,
    "chains": write_chains,
    "tails": write_tails,
    "profile": write_profile,
}


def fill(text: str, folder: Folder) -> str:
    """The document with the tables of `folder`. Raises InvalidResult for a table of another name,
    and for files that are not of the form."""

    def write(block: re.Match) -> str:
        name = block[2]
        if name not in TABLES:
            raise InvalidResult(f"there is no table {name!r}, only {', '.join(TABLES)}")
        table = TABLES[name](folder)
        return f"{block[1]}\n{table}\n{block[3]}" if table else f"{block[1]}{block[3]}"

    return BLOCK.sub(write, text)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.readme", description=__doc__)
    parser.add_argument("--results", type=pathlib.Path, metavar="DIR")
    options = parser.parse_args(arguments)
    if options.results is not None and not options.results.is_dir():
        # Every table would be emptied.
        parser.error(f"--results: there is no folder {options.results}")
    texts = {path: path.read_text() for path in DOCUMENTS}
    try:
        filled = {path: fill(text, options.results) for path, text in texts.items()}
    except InvalidResult as reason:
        raise SystemExit(str(reason)) from None
    for path, text in filled.items():
        path.write_text(text)
        print(f"{path}: {'as before' if text == texts[path] else 'changed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
