"""The shapes of bench.sweep, and which variants are timed at each."""

from collections.abc import Sequence

from .cases import SWEEP_MODELS, Case
from .peers import PRODUCT, list_possible

# One row, the batches of a decoding language model, and then up to those of training.
SIZES = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)

# (N, K)
FEATURES = (
    (8192, 8192),  # the models
    (4096, 4096),
    (11008, 4096),  # into and out of the wide layer of a language model
    (4096, 11008),
    (1024, 1024),  # so little that the launch counts
    (4096, 512),  # short sums: the epilogue counts
    (1000, 2048),  # the last layer of an image classifier; N fills no tile
    (28672, 8192),  # a weight of 448 MiB
    # N odd: the rows of x and weight begin at multiples of 16 bytes, those of y do not.
    (1001, 2048),
    # K odd: nor do those of x and weight, which TMA cannot load then.
    (2048, 1001),
)

EVERYWHERE = tuple((m, n, k) for n, k in FEATURES for m in SIZES)
# Two dozen: every N x K with few rows and with many, and the models' and square products beyond.
SPREAD = (
    *((m, n, k) for n, k in FEATURES for m in (16, 1024)),
    (1, 8192, 8192),
    (8192, 8192, 8192),
    (128, 4096, 4096),
    (8192, 4096, 4096),
)

# (model, precision) -> (M, N, K) of its cases
SHAPES = {
    ("12", "bf16"): EVERYWHERE,
    ("12", "fp16"): SPREAD,
    ("linear", "bf16"): SPREAD,
}
MODELS = tuple(SWEEP_MODELS)
PRECISIONS = ("bf16", "fp16")

VARIANTS = ("ours", "eager", "compile", "max_autotune", "cudnn", PRODUCT)
AUTOTUNED = ("12", "bf16")  # it takes long


class SweepCase(Case):
    """Its variants are replayed as CUDA graphs."""

    __slots__ = ()

    def describe(self, suite: str) -> dict:
        return {**super().describe(suite), "graph": True}


def list_sweep_cases(
    models: Sequence[str],
    precisions: Sequence[str],
    sizes: Sequence[tuple[int, int, int]] = (),
) -> list[SweepCase]:
    """The cases by N x K, so that neighbours share their weight: those of `sizes`, if any."""

    def order(shape):
        return FEATURES.index(shape[1:]) if not sizes else shape[1:]

    return [
        SweepCase(model, "eval", precision, *shape)
        for (model, precision), shapes in SHAPES.items()
        if model in models and precision in precisions
        for shape in sorted(sizes or shapes, key=order)
    ]


def list_planned(variants: Sequence[str], case: Case) -> list[str]:
    """Those of the variants that are timed in this case: max-autotune on the spread only, and at
    sizes of the caller's."""
    shape, model = (case.m, case.n, case.k), (case.model, case.precision)
    if model != AUTOTUNED or (shape in EVERYWHERE and shape not in SPREAD):
        variants = [name for name in variants if name != "max_autotune"]
    return list(variants)


def list_sweep_variants(variants: Sequence[str], case: Case) -> list[str]:
    """Those of them that can be had here."""
    return list_possible(list_planned(variants, case), case)
