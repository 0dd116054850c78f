"""Rows as the benches write them into their result files; all times are made up."""

from bench.measure.results import MODELS, PRECISIONS
from bench.plotting import accuracy as plotting_accuracy

META = {"gpu": "h200", "driver": "580.0", "cuda": "13.0", "torch": "2.11.0"}
META |= {"commit": "abc", "date": "2026-11-21"}
MS = {"ours": 0.8, "eager": 2.0, "compile": 1.6, "max_autotune": 1.5, "cudnn": 1.0}
MS |= {"folded": 1.9, "bare_product": 1.25, "ours_sm80": 1.2, "ours_uncached": 0.9}


def make_row(model="12", mode="eval", precision="bf16", variant="ours", ms=None, **more):
    ms = MS[variant] if ms is None else ms
    row = {"suite": "models", "model": model, "mode": mode, "precision": precision}
    row |= {"M": 1024, "N": 8192, "K": 8192, "variant": variant, "ms": ms, "ms_min": ms}
    return row | {"ms_max": ms, "rel_err": 1e-3} | more


def make_layer_row(model="softmax", mode="eval", precision="bf16", m=4096, **more):
    """At 2 TB/s."""
    passes, size = {"softmax": 2, "batch_norm": 3}[model], {"ieee": 4, "bf16": 2}[precision]
    ms = passes * size * m * 8192 / 2e9
    row = make_row(model, mode, precision, suite="memory_bound", K=0, M=m, gbps=2000.0, ms=ms)
    return row | more


EVERYTHING = [
    make_row(model, mode, precision, variant)
    for model in MODELS
    for mode in ("train", "eval")
    for precision in PRECISIONS
    for variant in MS
]
LAYERS = [
    make_layer_row(model, mode, precision, m, variant=variant)
    for model, mode in (("softmax", "eval"), ("batch_norm", "train"))
    for precision in ("ieee", "bf16")
    for variant in ("ours", "eager", "compile")
    for m in (16, 4096)
]
SWEEP = [
    make_row(variant=variant, suite="sweep", graph=True, M=m, N=n, K=512)
    for m in (16, 128)
    for n in (1024, 512)
    for variant in ("ours", "eager", "compile", "bare_product")
]
ACCURACY = [
    make_row(model, "eval", precision, variant, 1.0, suite="accuracy", K=k, err_componentwise=0.1)
    for model in plotting_accuracy.KINDS
    for variant, precision in plotting_accuracy.LOOKS
    for k in (64, 8192)
]
