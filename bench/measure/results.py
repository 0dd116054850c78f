"""The form of the result files, and the files themselves.

    {"meta": {gpu, driver, cuda, torch, commit, date},
     "rows": [{suite, model, mode, precision, M, N, K, variant, ms, ms_min, ms_max, rel_err}, ...]}

ms is the median over the rounds, rel_err the relative L2 error against float64. Rows may also say
layout, weight and batch (of products), source (the layer of a real model), engine, tile, grad,
graph, gbps (bytes that must move over ms, in 1e9 per second), err_median and err_componentwise
(over the outputs, of |error| / (|x| @ |weight|.T), the median and the largest), err_column and
err_row (over the columns and the rows, the largest relative L2 error of one), wall_ms and peak_mib
(of a step of training: the median on the host's clock from an idle GPU until it is done, and the
memory that it takes at most beyond what was there, in 2^20 bytes). rel_err of a step is that of the
worst of its gradients. K is 0 in memory_bound, where there is no product. In epilogues, rows that
are "fresh" are of the first call of a process, on the host's clock: wall_ms is ms with the tracing
of the function, and kernels is how many were linked. In tails, model is the name that the tests
give it, of any text.

A case is what one interleaved run measures: the rows that differ in nothing but their variant. Its
rows come from one run and are replaced together.
"""

import json
import math
import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterable

SUITES = (
    "models",
    "sweep",
    "products",
    "training",
    "memory_bound",
    "host",
    "switch",
    "accuracy",
    "epilogues",
    "end_to_end",
    "chains",
    "tails",
    "trust",
)
MODELS = ("12", "33", "39", "84")
EXTRA_MODELS = {
    "training": (
        "stylegan2_mapping",
        "pointnet_head",
        "tabular_resnet",
        "dlrm_top",
        "pinn",
        "vit_mlp",
        # MLP potentials, with their number of layers.
        *(f"{task}_{n}" for task in ("energies", "forces", "force_step") for n in (3, 5, 8)),
    ),
    # Of examples/models.
    "end_to_end": (
        *("stylegan2_mapping", "pointnet_head", "tabular_resnet", "vit_mlp", "dlrm_top"),
        *("pinn", "potential", "moe_router"),
    ),
    "sweep": ("linear",),
    "memory_bound": ("softmax", "batch_norm"),
    "products": ("product",),
    # PyTorch's products.
    "switch": ("mm", "linear", "bmm"),
    # One product, named by what its matrices hold.
    "accuracy": (
        "rand",
        "randn",
        "lognormal_0.5",
        "lognormal_1",
        "lognormal_3",
        "ill_conditioned",
        "cancelling",
        "scaled_outputs",
        "scaled_terms",
        "scaled_both",
    ),
    # Eight layers and activations.
    "chains": ("mlp",),
    # Programs.
    "epilogues": (
        "identity",
        "affine",
        "scale_leaky_relu",
        "gelu",
        "gelu_tanh",
        "silu",
        "residual",
        "gate",
        "two_outputs",
        # Along rows.
        *("logsumexp", "softmax", "layer_norm", "group_norm"),
    ),
}
# Of models that have any name.
OPEN_SUITES = ("tails",)
MODES = ("train", "eval")
PRECISIONS = ("ieee", "tf32", "bf16", "fp16")
VARIANTS = (
    "ours",
    "ours_sm80",
    "ours_uncached",
    "ours_compile",
    "ours_compile_graphs",
    "ours_graphs",
    "ours_replays",
    "eager",
    "compile",
    "compile_graphs",
    "max_autotune",
    "cudnn",
    "folded",
    "bare_product",
    "bare_products",
    "copy",
    "cublas",
    "bf16x3",
    # Of epilogues: the program that does nothing, a kernel that the library has compiled.
    "identity",
    "compiled",
    "first_call",
    "cached_call",
)
META = ("gpu", "driver", "cuda", "torch", "commit", "date")
# Patch levels of the driver differ between machines of one kind, so a run may go on under another.
SAME_ON_RESUMING = ("gpu", "cuda", "torch", "commit")
# Git shows at least so many digits of a commit.
ABBREVIATED = re.compile(r"[0-9a-f]{7,40}")

# A median that many times the least has seen something else than the variant, at least in part.
UNSTEADY = 1.5


def _is_size(value) -> bool:
    return type(value) is int and value > 0


def _is_size_or_0(value) -> bool:
    return type(value) is int and value >= 0


def _is_number(value) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _is_time(value) -> bool:
    return _is_number(value) and value > 0


def _is_text(value) -> bool:
    return isinstance(value, str) and value != ""


def _is_flag(value) -> bool:
    return isinstance(value, bool)


def _one_of(words: Iterable[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and value in words


# In the order in which a row is written.
REQUIRED = {
    "suite": _one_of(SUITES),
    "model": _is_text,
    "mode": _one_of(MODES),
    "precision": _one_of(PRECISIONS),
    "M": _is_size,
    "N": _is_size,
    "K": _is_size_or_0,
    "variant": _one_of(VARIANTS),
    "ms": _is_time,
    "ms_min": _is_time,
    "ms_max": _is_time,
    "rel_err": _is_number,
}
OPTIONAL = {
    "layout": _one_of(("fwd", "dgrad", "wgrad", "bmm", "mixed")),
    "weight": _one_of(("kept", "new")),
    "batch": _is_size,
    "source": _is_text,
    "engine": _is_text,
    "tile": _is_text,
    "grad": _is_flag,
    "graph": _is_flag,
    "gbps": _is_time,
    "err_median": _is_number,
    "err_componentwise": _is_number,
    "err_column": _is_number,
    "err_row": _is_number,
    "wall_ms": _is_time,
    "peak_mib": _is_number,
    "fresh": _is_flag,
    "kernels": _is_size_or_0,
}
CASE = ("suite", "model", "mode", "precision", "M", "N", "K")
# What some suites tell apart beside that, and what its absence means.
MORE_OF_CASE = {
    "layout": "",
    "weight": "",
    "batch": 1,
    "source": "",
    "grad": False,
    "graph": False,
    "fresh": False,
}


class InvalidResult(ValueError):
    """A row or file that is not of the form."""


def check_row(row: dict) -> None:
    """Raise InvalidResult, naming the key, unless `row` is of the form."""
    if missing := [key for key in REQUIRED if key not in row]:
        raise InvalidResult(f"row: {', '.join(missing)} is missing in {row}")
    for key, value in row.items():
        check = REQUIRED.get(key) or OPTIONAL.get(key)
        if check is None:
            raise InvalidResult(f"row: {key} is no key of the form, in {row}")
        if not check(value):
            raise InvalidResult(f"row: {key} cannot be {value!r}, in {row}")
    allowed = MODELS + EXTRA_MODELS.get(row["suite"], ())
    if row["model"] not in allowed and row["suite"] not in OPEN_SUITES:
        raise InvalidResult(f"row: suite {row['suite']} has no model {row['model']!r}")
    if (row["K"] == 0) != (row["suite"] == "memory_bound"):
        raise InvalidResult(f"row: K must be 0 in memory_bound, and only there, in {row}")
    if not row["ms_min"] <= row["ms"] <= row["ms_max"]:
        raise InvalidResult(f"row: ms must lie between ms_min and ms_max, in {row}")


def check_meta(meta: dict) -> None:
    """Raise InvalidResult, naming the key, unless `meta` is of the form."""
    if set(meta) != set(META):
        raise InvalidResult(f"meta: the keys must be {', '.join(META)}, got {', '.join(meta)}")
    for key, value in meta.items():
        if not _is_text(value):
            raise InvalidResult(f"meta: {key} must be text, got {value!r}")


def is_unsteady(row: dict) -> bool:
    return row["ms"] > UNSTEADY * row["ms_min"]


def is_same_commit(one: str, other: str) -> bool:
    """Whether both name one commit, of which one of them may give the first digits only."""
    short, long = sorted((one, other), key=len)
    return one == other or bool(ABBREVIATED.fullmatch(short) and long.startswith(short))


def list_changes(before: dict, meta: dict) -> list[str]:
    """By what two metas are of another machine, or another commit."""
    other = [key for key in SAME_ON_RESUMING if before[key] != meta[key]]
    if is_same_commit(before["commit"], meta["commit"]):
        other = [key for key in other if key != "commit"]
    return [f"{key} {before[key]} (now {meta[key]})" for key in other]


def case_of(row: dict) -> tuple:
    """What `row` shares with the other variants of its case."""
    more = (row.get(key, absent) for key, absent in MORE_OF_CASE.items())
    return (*(row[key] for key in CASE), *more)


def _rank(row: dict) -> tuple:
    """Rows are sorted, so that a rerun changes numbers and not their order."""
    place = MODES.index(row["mode"]), PRECISIONS.index(row["precision"])
    shape = row["M"], row["N"], row["K"]
    more = case_of(row)[len(CASE) :]
    return row["model"], *place, *shape, *more, VARIANTS.index(row["variant"])


def read_content(path: pathlib.Path) -> tuple[dict, list[dict]]:
    """The meta, and rows that nobody has looked at. Raises InvalidResult where there are none."""
    try:
        content = json.loads(path.read_text())
        meta, rows = content["meta"], content["rows"]
        check_meta(meta)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidResult(f"{path} is no result file: {error}") from error
    return meta, rows


class ResultFile:
    """The rows of one suite, in one file, under one `meta`."""

    def __init__(self, folder: pathlib.Path, suite: str, meta: dict, start_anew: bool = False):
        """Rows that are there already stay, if they come from such a machine and commit.

        Otherwise InvalidResult is raised, or with `start_anew` the file begins without them.
        """
        check_meta(meta)
        self.path, self.suite, self.meta = pathlib.Path(folder) / f"{suite}.json", suite, meta
        self.rows = []
        if not self.path.exists():
            return
        before, rows = self._read()
        changes = list_changes(before, meta)
        if not changes:
            self.rows = rows
            self.meta = meta | {"commit": max(before["commit"], meta["commit"], key=len)}
        elif not start_anew:
            told = ", ".join(changes)
            raise InvalidResult(f"{self.path} holds results of {told}; --again replaces them")

    @classmethod
    def read(cls, path: pathlib.Path) -> "ResultFile":
        """One that is there. Raises InvalidResult unless it is of the form."""
        meta, _ = read_content(path)
        return cls(path.parent, path.stem, meta)

    def _read(self) -> tuple[dict, list[dict]]:
        meta, rows = read_content(self.path)
        try:
            self._check(rows)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidResult(f"{self.path} is no result file: {error}") from error
        return meta, rows

    def _check(self, rows: list[dict]) -> None:
        seen = set()
        for row in rows:
            check_row(row)
            if row["suite"] != self.suite:
                raise InvalidResult(f"row: the suite of {self.path.name} is not {row['suite']}")
            key = (*case_of(row), row["variant"])
            if key in seen:
                raise InvalidResult(f"row: twice the same, {row}")
            seen.add(key)

    def list_variants(self, case: tuple) -> set[str]:
        """The variants measured for a case, given as `case_of` gives it."""
        return {row["variant"] for row in self.rows if case_of(row) == case}

    def is_unsteady(self, case: tuple) -> bool:
        return any(is_unsteady(row) for row in self.rows if case_of(row) == case)

    def replace(self, rows: list[dict]) -> None:
        """Put in the rows of one or more cases, and write the file."""
        self.put(rows)
        self.write()

    def put(self, rows: list[dict]) -> None:
        """Put in the rows of one or more cases; the file stays as it is."""
        cases = {case_of(row) for row in rows}
        rows = [row for row in self.rows if case_of(row) not in cases] + rows
        self._check(rows)
        self.rows = sorted(rows, key=_rank)

    def write(self) -> None:
        """All or nothing: a run that is killed leaves the file as it was."""
        lines = ",\n".join(json.dumps(row, allow_nan=False) for row in self.rows)
        text = f'{{\n"meta": {json.dumps(self.meta)},\n"rows": [\n{lines}\n]\n}}\n'
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        try:
            # mkstemp's files are readable by nobody else.
            os.chmod(name, 0o644)
            with os.fdopen(handle, "w") as file:
                file.write(text)
            os.replace(name, self.path)
        except BaseException:
            os.unlink(name)
            raise
