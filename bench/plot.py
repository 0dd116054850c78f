"""python -m bench.plot [--results DIR]: draws pictures into DIR from its result files.

Without DIR those of each folder that the documents show.

speedups.png: how many times faster than eager each variant runs each model (models.json).
roofline.png: what the models (models.json) and the layers alone (memory_bound.json) reach.
sweep.png: the fastest peer over ours at many shapes (sweep.json).
products.png: cuBLAS over ours, for the three products of a Linear in fp32 (products.json).
model_products.png: the same for layers of real models, and batches (products.json).
potentials.png: eager PyTorch over ours, for steps of potentials (training.json).
accuracy.png: errors of fp32 products over time and over K (accuracy.json).
epilogues.png: the fastest peer over ours, for epilogues that users write (epilogues.json).
end_to_end.png: the best of PyTorch over the best of ours, for real models (end_to_end.json).
A file that is missing is left out.
"""

import argparse
import itertools
import json
import pathlib
import sys
from collections.abc import Sequence

from cutlass_fused.comparison.drawing import draw_speedups

from .measure.results import InvalidResult, check_meta, check_row
from .plotting.accuracy import draw_accuracy, list_blocks
from .plotting.end_to_end.picture import draw_end_to_end
from .plotting.end_to_end.ratios import collect_ratios
from .plotting.epilogues.picture import collect_panels, draw_epilogues
from .plotting.model_products import collect_model_ratios, draw_model_products
from .plotting.potentials import draw_potentials
from .plotting.products import draw_products
from .plotting.roofline import draw_roofline
from .plotting.roofs import ROOFS, compute_points
from .plotting.sweep import draw_sweep, take_ratios
from .plotting.training import collect_potentials

RESULTS = pathlib.Path(__file__).parent / "results"
# From which folder of RESULTS, named by its GPU, the documents show what: suites, the tables of
# bench.profile, and the problems of bench.kernelbench.level2. Another folder has no file of it.
SHOWN = {
    "models": "h200",
    "memory_bound": "h200",
    "sweep": "h200",
    "host": "h200",
    "switch": "h100",
    "profile": "h200",
    "level2": "h200",
    "accuracy": "h200",
    "products": "h200",
    "training": "h200",
    "epilogues": "h100",
    "end_to_end": "h200",
    "chains": "h100",
    "tails": "h200",
}
# The suites that a picture is drawn from.
PICTURES = {
    "speedups.png": ("models",),
    "roofline.png": ("models", "memory_bound"),
    "sweep.png": ("sweep",),
    "products.png": ("products",),
    "model_products.png": ("products",),
    "potentials.png": ("training",),
    "accuracy.png": ("accuracy",),
    "epilogues.png": ("epilogues",),
    "end_to_end.png": ("end_to_end",),
}
# Shown beside the tables of training, of epilogues, and of real models.
POTENTIALS, EPILOGUES, END_TO_END = "potentials.png", "epilogues.png", "end_to_end.png"

Folder = pathlib.Path | None  # None: that which SHOWN names


def choose_folder(folder: Folder, suite: str) -> pathlib.Path:
    return RESULTS / SHOWN[suite] if folder is None else folder


def read_rows(
    folder: Folder, suite: str, graph: bool = False, grad: bool = False
) -> tuple[dict | None, list[dict]]:
    """The meta of a suite, and its rows in CUDA graphs or those in none, under grad or not.

    (None, []) where there is no such file, or none is shown yet. Raises InvalidResult where it
    cannot be read or is not of the form.
    """
    if folder is None and suite not in SHOWN:
        return None, []
    path = choose_folder(folder, suite) / f"{suite}.json"
    if not path.exists():
        return None, []
    try:
        content = json.loads(path.read_text())
        meta, rows = content["meta"], content["rows"]
        check_meta(meta)
        for row in rows:
            check_row(row)
    except OSError as error:
        raise InvalidResult(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidResult(f"{path} is no result file: {error}") from error
    flags = {"graph": graph, "grad": grad}
    return meta, [r for r in rows if all(r.get(key, False) == flags[key] for key in flags)]


def read_real_models(folder: Folder) -> tuple[dict | None, list[dict]]:
    """Inference, of which some takes gradients, and steps."""
    meta, rows = read_rows(folder, "end_to_end")
    return meta, rows + read_rows(folder, "end_to_end", grad=True)[1]


def draw_results(folder: pathlib.Path, out: pathlib.Path) -> list[pathlib.Path]:
    """The pictures that could be drawn. Raises InvalidResult where there is nothing to draw."""
    model_meta, models = read_rows(folder, "models")
    layer_meta, layers = read_rows(folder, "memory_bound")
    sweep_meta, sweep = read_rows(folder, "sweep", graph=True)
    accuracy_meta, accuracy = read_rows(folder, "accuracy")
    products_meta, products = read_rows(folder, "products", graph=True)
    training_meta, training = read_rows(folder, "training", grad=True)
    epilogues_meta, epilogues = read_rows(folder, "epilogues")
    end_to_end_meta, end_to_end = read_real_models(folder)
    potentials, panels = collect_potentials(training, "ms"), collect_panels(epilogues)
    drawn = (models, layers, take_ratios(sweep), list_blocks(accuracy), products, potentials)
    if not any((*drawn, panels, collect_ratios(end_to_end))):
        names = "models.json, memory_bound.json, sweep.json, accuracy.json, products.json, "
        names += "epilogues.json, end_to_end.json or training.json"
        raise InvalidResult(f"{folder} holds no rows to draw in {names}")
    metas = (model_meta, layer_meta, sweep_meta, accuracy_meta, products_meta, training_meta)
    metas += epilogues_meta, end_to_end_meta
    gpus = {meta["gpu"] for meta in metas if meta is not None}
    if len(gpus) > 1:
        raise InvalidResult(f"{folder} holds results of several GPUs: {', '.join(sorted(gpus))}")
    (gpu,) = gpus
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    if models:
        paths.append(out / "speedups.png")
        draw_speedups(models, paths[-1])
    if models or layers:
        if gpu not in ROOFS:
            print(f"no roofs are known of {gpu}: none is drawn")
        paths.append(out / "roofline.png")
        draw_roofline(compute_points(models), compute_points(layers), gpu, paths[-1])
    if take_ratios(sweep):
        paths.append(out / "sweep.png")
        draw_sweep(sweep, gpu, paths[-1])
    if products:
        paths.append(out / "products.png")
        draw_products(products, gpu, paths[-1])
    if collect_model_ratios(products)[0]:
        paths.append(out / "model_products.png")
        draw_model_products(products, gpu, paths[-1])
    if potentials:
        paths.append(out / POTENTIALS)
        draw_potentials(training, gpu, paths[-1])
    if list_blocks(accuracy):
        paths.append(out / "accuracy.png")
        draw_accuracy(accuracy, gpu, paths[-1])
    if panels:
        paths.append(out / EPILOGUES)
        draw_epilogues(epilogues, gpu, paths[-1])
    if collect_ratios(end_to_end):
        paths.append(out / END_TO_END)
        draw_end_to_end(end_to_end, gpu, paths[-1])
    return paths


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.plot", description=__doc__)
    folders = sorted({RESULTS / name for name in SHOWN.values()})
    parser.add_argument("--results", type=pathlib.Path, nargs=1, default=folders, metavar="DIR")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="default: the results'")
    options = parser.parse_args(arguments)
    try:
        drawn = [draw_results(folder, options.out or folder) for folder in options.results]
    except (ValueError, ImportError) as error:
        raise SystemExit(str(error)) from None
    except OSError as error:
        raise SystemExit(f"{error.filename} cannot be written: {error.strerror}") from None
    for path in itertools.chain(*drawn):
        print(f"{path}: drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
