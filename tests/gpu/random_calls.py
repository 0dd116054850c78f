"""Random calls of every op on the GPU, judged as the tests judge theirs; one line repeats one.

    python3 tests/gpu/random_calls.py --seed 1 --count 20000 --processes 12 --out build/random.json
    python3 tests/gpu/random_calls.py --seed 1 --only 4711

Ops, dtypes, precisions, shapes (odd ones favoured), layouts, kinds of vectors and scales, and kinds
of inputs are drawn by the seed and the number of the call alone.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import multiprocessing
import pathlib
import random
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src"), *map(str, (TESTS / "helpers").glob("*/"))]

import torch  # noqa: E402
from accuracy import Rejected, UnfitYardstick, ulp  # noqa: E402
from calls import (  # noqa: E402
    ALL_OPS,
    NORM_OPS,
    OPS,
    SOFTMAX_OPS,
    STATISTICS_OPS,
    TRAIN_OPS,
)
from cases import NUMERICS, Shape, make_call  # noqa: E402
from cases_statistics import OPS_AND_NUMERICS, make_statistics_call  # noqa: E402
from check_call import run_all_poisoned, run_poisoned  # noqa: E402
from judge_call import make_judge  # noqa: E402
from layouts import (  # noqa: E402
    SCALE_KINDS,
    VECTOR_KINDS,
    cut_aligned_block,
    cut_block,
    misalign_rows,
    offset_storage,
    transpose,
    widen_rows,
)

NUMERICS_OF = {op: tuple(NUMERICS) for op in OPS}
for statistics_op, row in OPS_AND_NUMERICS:
    NUMERICS_OF.setdefault(statistics_op, [])
    if statistics_op not in OPS:
        NUMERICS_OF[statistics_op].append(row)
LAYOUTS = (
    cut_aligned_block,
    cut_block,
    misalign_rows,
    offset_storage,
    transpose,
    widen_rows,
)
KINDS = (
    "plain",
    "plain",
    "heavy tails",
    "tiny x, large bias",
    "zero columns",
    "far means",
    "rows of scales",
)
MOST_NUMBERS, MOST_PRODUCTS = 2**23, 2**30
# Where few numbers are large it is luck how large eager's largest error is: such a call is drawn
# again with other numbers, and the largest errors of all of them are compared.
DRAWS = 24


def draw_size(rng: random.Random, most: int) -> int:
    size = round(math.exp(rng.uniform(0.0, math.log(most))))
    return size | 1 if rng.random() < 0.5 else size


def draw_shape(rng: random.Random, op: str) -> Shape:
    while True:
        m, n, k = draw_size(rng, 20000), draw_size(rng, 9000), draw_size(rng, 6000)
        if rng.random() < 0.5:  # rows that TMA reads
            n, k = -(-n // 8) * 8, -(-k // 8) * 8
        if op in TRAIN_OPS and m < 2:
            continue
        if m * n <= MOST_NUMBERS and m * n * k <= MOST_PRODUCTS:
            return Shape(m, n, k, "random")


def spoil(call, kind: str, generator: torch.Generator):
    """The call with inputs of this kind."""

    def normal(*size):
        return torch.randn(size, generator=generator, device=call.x.device)

    def keep(tensor):
        return tensor.to(call.x.dtype)

    if kind == "heavy tails":
        numbers = normal(*call.x.shape)
        return call.change(x=keep(numbers.sign() * torch.exp(2 * normal(*call.x.shape))))
    if kind == "rows of scales":
        return call.change(x=keep(call.x * torch.exp(2 * normal(call.x.shape[0], 1))))
    if kind == "tiny x, large bias" and call.weight is not None and call.bias is not None:
        return call.change(x=keep(1e-6 * call.x.float()), bias=30 * call.bias)
    if kind == "zero columns":
        x = call.x.clone()
        x[:, ::3] = 0
        if call.weight is None:
            return call.change(x=x)
        weight = call.weight.clone()
        weight[::3] = 0
        return call.change(x=x, weight=weight)
    if kind == "far means" and call.op in NORM_OPS:
        far = torch.exp(4 * torch.rand(call.n, generator=generator, device=call.x.device))
        if call.weight is None:
            return call.change(x=keep(call.x + far))
        if call.bias is not None and call.bias.dim() == 1:
            return call.change(bias=(far + call.bias).to(call.bias.dtype))
    return call


def draw_call(seed: int, index: int, draw: int = 0):
    """The call of this number, and what it is in words; `draw`: the same with other numbers."""
    rng = random.Random(f"{seed} {index}")
    op = rng.choice(ALL_OPS)
    numerics = rng.choice(list(NUMERICS_OF[op]))
    shape, kind = draw_shape(rng, op), rng.choice(KINDS)
    vectors, bias, scale = (
        rng.choice(VECTOR_KINDS),
        rng.choice(VECTOR_KINDS),
        rng.choice(SCALE_KINDS),
    )
    number = 1_000_003 * index + 7919 * draw + seed
    options = {"bias": bias, "scale": scale, "vectors": vectors, "seed": number}
    if op in STATISTICS_OPS:
        statistics = rng.choice([k for k in VECTOR_KINDS if k not in ("none", "expanded")])
        if op in TRAIN_OPS:
            options["momentum"] = rng.choice([None, 0.0, 0.1, 1.0])
        call = make_statistics_call(op, shape, numerics, "cuda", statistics=statistics, **options)
    else:
        # In fp16 the last would overflow, in eager earlier than here.
        names = ["normal", "model", "positive", "log_normal"]
        options["distribution"] = rng.choice(names[: 3 if numerics.dtype == torch.float16 else 4])
        options |= {
            "multiplier": rng.choice([1.0, -2.0, 0.5]),
            "slope": rng.choice([0.1, -0.5, 0.0]),
        }
        call = make_call(op, shape, numerics, "cuda", **options)
    generator = torch.Generator("cuda").manual_seed(number)
    call = spoil(call, kind, generator)
    layouts = [rng.choice((None, *LAYOUTS)), rng.choice((None, *LAYOUTS))]
    if layouts[0] is not None:
        call = call.change(x=layouts[0](call.x))
    if layouts[1] is not None and call.weight is not None:
        call = call.change(weight=layouts[1](call.weight))
    call = call.change(keep_z=rng.random() < 0.3)
    names = [layout.__name__ if layout else "contiguous" for layout in layouts]
    words = f"{op} {numerics} {shape.m}x{shape.n}x{shape.k} {kind}, {names}, {options}"
    return call, words


def run(call):
    return run_all_poisoned(call) if call.op in STATISTICS_OPS else {"y": run_poisoned(call)}


def find_errors(call, judge, results) -> dict[str, tuple[float, float, float]]:
    """Result -> our largest error, eager's, and one ulp, of what is finite."""
    if call.op not in STATISTICS_OPS:
        error = judge._error(results["y"].reshape(judge.truth.shape)).max()
        return {"y": (float(error), judge.largest_eager_error, judge.largest_limit())}
    errors = {}
    for name, ours in results.items():
        truth = judge.truth[name]
        if truth.numel() == 0 or name == "num_batches_tracked":
            continue
        error = (ours.reshape(truth.shape).double() - truth).abs()
        largest = float(error[torch.isfinite(error)].max()) if torch.isfinite(error).any() else 0.0
        limit = judge.limit(name)
        errors[name] = (
            largest,
            judge.largest_eager_error(name),
            float(limit[torch.isfinite(limit)].max()),
        )
    return errors


def is_luck(seed: int, index: int) -> bool:
    """Whether over many draws of its numbers our largest errors stay within the limits of all."""
    pooled = collections.defaultdict(lambda: [0.0, 0.0])
    for draw in range(DRAWS):
        call, _ = draw_call(seed, index, draw)
        try:
            judge = make_judge(call)
        except UnfitYardstick:
            continue
        for name, (ours, _, limit) in find_errors(call, judge, run(call)).items():
            pooled[name][0] = max(pooled[name][0], ours)
            pooled[name][1] = max(pooled[name][1], limit)
    return all(ours <= limit for ours, limit in pooled.values())


def is_within_bounds(call, judge, results) -> bool:
    """Whether what is above twice eager's error is what sums on tensor cores may lose by their
    a-priori bound: eager has those of CUDA cores where sizes or alignments keep cuBLAS from the
    former, and in fp32 results of 16-bit inputs that is all there is to lose."""
    if call.op not in STATISTICS_OPS:
        try:
            judge.check_bound(results["y"].reshape(judge.truth.shape))
        except Rejected:
            return False
        return True
    for name, ours in results.items():
        if judge.truth[name].numel() == 0 or name == "num_batches_tracked":
            continue
        ours = ours.reshape(judge.truth[name].shape)
        if not judge._mark_wrong(name, ours, judge.limit(name)).any():
            continue
        if name not in judge.bounds:
            return False
        limit = judge.bounds[name] + ulp(judge.truth[name], ours.dtype)
        if judge._mark_wrong(name, ours, limit).any():
            return False
    return True


def is_right(call) -> bool:
    try:
        make_judge(call).check(run(call))
    except Rejected:
        return False
    return True


def explain(call, judge, results, seed: int, index: int, error: Rejected) -> str | None:
    """The name of what a rejection stems from, where it is known; each is looked at."""
    above, narrow = "error above" in str(error), call.x.dtype.itemsize == 2
    if above and narrow and call.result_dtype == torch.float32:
        if is_within_bounds(call, judge, results):
            return "sums on tensor cores"
    if above and is_luck(seed, index):
        return "luck of few large numbers"
    if above and not narrow and call.op in OPS and is_within_bounds(call, judge, results):
        # One term of a sum is nearly all of it: its product has 22 digits, eager's 24.
        return "digits of a split product"
    if above and narrow and call.keep_z and is_right(call.change(keep_z=False)):
        # The raw op alone: without a centre z is returned as it is, and y is normalized from that.
        # A z of nearly equal numbers may be two of 16 bits.
        return "z kept as it is"
    if "not one rounding" in str(error) and call.op in STATISTICS_OPS:
        # Within twice eager's error all the same. A row of a softmax that no registers hold goes
        # through memory in 16 bits, as eager's do; and z is rounded less what the bias adds.
        if not judge._mark_wrong("y", results["y"], judge.limit("y")).any():
            return "16-bit logits" if call.op in SOFTMAX_OPS else "z rounded less its bias"
    return None


def judge_one(seed: int, index: int) -> tuple[str, str]:
    """What became of a call, and its words."""
    call, words = draw_call(seed, index)
    try:
        judge = make_judge(call)
    except UnfitYardstick as error:
        return "eager unfit", f"{words}: {error}"
    results = run(call)
    try:
        judge.check(results if call.op in STATISTICS_OPS else results["y"])
    except Rejected as error:
        return explain(call, judge, results, seed, index, error) or "rejected", f"{words}: {error}"
    return "right", words


def work(arguments) -> list[tuple[int, str, str]]:
    seed, indices = arguments
    found = []
    for index in indices:
        try:
            verdict, words = judge_one(seed, index)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            verdict, words = "out of memory", ""
        except Exception as error:
            verdict, words = (
                "raised",
                f"{draw_call(seed, index)[1]}: {type(error).__name__}: {error}",
            )
        found.append((index, verdict, words))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--only", type=int)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if options.only is not None:
        print(*judge_one(options.seed, options.only))
        return
    begin, chunk = time.monotonic(), 25
    chunks = [
        (options.seed, range(first, min(first + chunk, options.count)))
        for first in range(0, options.count, chunk)
    ]
    verdicts, told = collections.Counter(), []
    pool = multiprocessing.get_context("spawn").Pool(options.processes)
    for found in pool.imap_unordered(work, chunks):
        for index, verdict, words in found:
            verdicts[verdict] += 1
            if verdict != "right":
                told.append({"index": index, "verdict": verdict, "what": words})
        if time.monotonic() - begin > options.seconds:
            break
    pool.terminate()
    result = {"seed": options.seed, "verdicts": dict(verdicts), "told": told}
    print(json.dumps(result["verdicts"]), f"{time.monotonic() - begin:.0f} s")
    for entry in told[:20]:
        print(entry["index"], entry["verdict"], entry["what"][:400])
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
