"""Every variant is held against float64 once, before it is timed: its result, and the running
statistics that this one call leaves behind."""

import time
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from cutlass_fused import comparison

Run = Callable[[], Tensor]

# The errors of a product and what follows it column by column. A variant that errs more does not
# compute this model, or not in this precision: these are a few times eager's own errors, less than
# what a wrong slope or a missing bias would do, and "ieee" lies far below the error of TF32.
LARGEST_ERRORS = {"ieee": 1e-5, "tf32": 1e-3, "bf16": 1e-2, "fp16": 2e-3}

# Batch norm takes out the mean, here about 1.7 standard deviations, so that the same absolute error
# is twice as much of what is left. Simulated at K = 8192, eager, which also rounds between its
# kernels, comes to 6e-4 with TF32, 8e-3 with bf16 and 9e-4 with fp16.
BATCH_NORM_FACTOR = 2


class WrongResult(RuntimeError):
    """A variant errs more than its precision allows."""


def report_failures(failures: Mapping[tuple[object, str], type[Exception]]) -> list[str]:
    """Print which variants of which cases are left out; return the names of the wrong ones."""
    if failures:
        print(f"{len(failures)} variants are left out:")
    for (case, name), error in failures.items():
        print(f"  {case}: {name}: {error.__name__}")
    return [name for (_, name), error in failures.items() if issubclass(error, WrongResult)]


def measure_or_leave_out(
    case: object,
    failures: dict[tuple[object, str], type[Exception]],
    measure: Callable[[dict[str, type[Exception]]], list[dict]],
) -> list[dict]:
    """The rows of a case. `measure` gets a dict for the variants that fail; where it fails itself,
    for what all of them need, as memory, that is told, and "all" has failed."""
    own: dict[str, type[Exception]] = {}
    try:
        rows = measure(own)
    except Exception as error:
        print(f"  the case is left out: {type(error).__name__}: {error}", flush=True)
        rows, own["all"] = [], type(error)
    failures.update({(case, name): error for name, error in own.items()})
    return rows


def check_error(name: str, error: float, limit: float) -> float:
    """Returns the error; raises WrongResult if it is above the limit or NaN."""
    if not error <= limit:
        raise WrongResult(f"{name} has a relative error of {error:.2e}, above {limit:.0e}")
    return error


def check_written(name: str, y: Tensor) -> Tensor:
    """Returns y; raises WrongResult if any of it is NaN."""
    if y.isnan().any():
        raise WrongResult(f"{name} leaves NaN in its result")
    return y


def limit_error(plain: torch.nn.Module, precision: str) -> float:
    """The largest relative L2 error that a result of this model may have."""
    normalizes = any(isinstance(module, torch.nn.BatchNorm1d) for module in plain.modules())
    return LARGEST_ERRORS[precision] * (BATCH_NORM_FACTOR if normalizes else 1)


def measure_error(
    name: str, run: Run, plain: torch.nn.Module, truth: comparison.Truth, precision: str
) -> float:
    """The relative L2 error of one call, the first that `plain`, or what shares its buffers, sees.

    Raises WrongResult if it is too large, or if the call leaves wrong buffers in `plain`.
    """
    limit = limit_error(plain, precision)
    error = check_error(name, comparison.compute_error(run(), truth.y), limit)
    check_buffers(name, dict(plain.named_buffers()), truth.buffers, LARGEST_ERRORS[precision])
    return error


def check_buffers(
    name: str, found: Mapping[str, Tensor], expected: Mapping[str, Tensor], limit: float
) -> None:
    """Raises WrongResult unless the buffers of a model are the expected ones; counts exactly."""
    for key, truth in expected.items():
        buffer = found[key]
        if buffer.dtype.is_floating_point:
            check_error(f"{name}: {key}", comparison.compute_error(buffer, truth), limit)
        elif not torch.equal(buffer, truth):
            raise WrongResult(f"{name}: {key} is {buffer.tolist()}, not {truth.tolist()}")


def prepare_each(
    names: Iterable[str],
    prepare: Callable[[str], tuple[Run, float]],
    failures: dict[str, type[Exception]] | None = None,
) -> tuple[dict[str, Run], dict[str, float]]:
    """What to run, and its error, for each variant that can be had; the others are told.

    Ours must run and be right: there the exception goes on to the caller. Where `failures` are
    given, ours is told as the others are, and the types of all exceptions come to lie there.
    """
    runs, errors = {}, {}
    for name in names:
        start = time.perf_counter()
        try:
            run, error = prepare(name)
        except Exception as exception:
            if failures is not None:
                failures[name] = type(exception)
            elif name.startswith("ours"):
                raise
            print(f"  {name}: skipped: {_shorten(exception)}", flush=True)
            continue
        runs[name], errors[name] = run, error
        seconds = time.perf_counter() - start
        if seconds > 1:
            print(f"  {name}: prepared in {seconds:.0f} s", flush=True)
    return runs, errors


def _shorten(exception: Exception) -> str:
    """The first line: compilers and cuDNN append pages."""
    lines = str(exception).strip().splitlines() or ["without a message"]
    return f"{type(exception).__name__}: {lines[0][:200]}"
