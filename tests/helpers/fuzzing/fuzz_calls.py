"""Fuzzed calls of the ops that calls.py describes, judged as the tests judge theirs."""

from __future__ import annotations

import random

import torch
from accuracy import Rejected, ulp
from calls import (
    ALL_OPS,
    NORM_OPS,
    OPS,
    PRODUCT_OPS,
    SOFTMAX_OPS,
    STATISTICS_OPS,
    TRAIN_OPS,
    Call,
)
from cases import NUMERICS, Shape, make_call
from cases_statistics import OPS_AND_NUMERICS, make_statistics_call
from fuzz_case import Case, Errors, find_kinds
from fuzz_inputs import (
    Limits,
    draw_layout,
    draw_sizes,
    lay,
    make_generator,
    name_layout,
    put_non_finite,
)
from judge_call import make_judge
from judge_tiles import list_statistics_tiles
from layouts import (
    SCALE_KINDS,
    VECTOR_KINDS,
    cut_batches,
    drop_rows,
    split_rows,
    split_rows_twice,
    swap_leading,
)
from tiles import has_whole_pieces, list_tiles

NUMERICS_OF = {op: tuple(NUMERICS) for op in OPS}
for _op in STATISTICS_OPS:
    NUMERICS_OF[_op] = tuple(row for op, row in OPS_AND_NUMERICS if op == _op)
KINDS = (
    *("plain", "plain", "plain"),
    "heavy tails",
    "tiny x, large bias",
    "zero columns",
    "far means",
    "rows of scales",
    "non-finite",
)
SCALES = ("as drawn", "as drawn", "negative", "some zeros", "all zero", "minus zero")
RANKS = (split_rows, split_rows_twice, swap_leading, cut_batches)


class CallJudge:
    """Judge or StatisticsJudge; by the a-priori bound where a tile is forced, which eager's choice
    of a kernel says nothing of."""

    def __init__(self, call: Call, is_forced: bool = False) -> None:
        self.call, self.is_forced, self.judge = call, is_forced, make_judge(call)

    def check(self, results) -> None:
        if self.call.op in STATISTICS_OPS:
            self.judge.check(results)
        elif self.is_forced:
            self.judge.check_bound(results["y"].reshape(self.judge.truth.shape))
        else:
            self.judge.check(results["y"])

    def find_errors(self, results) -> dict[str, Errors]:
        judge = self.judge
        if self.call.op not in STATISTICS_OPS:
            error = judge._error(results["y"].reshape(judge.truth.shape)).max()
            return {"y": Errors(float(error), judge.largest_limit())}
        errors = {}
        for name, ours in results.items():
            truth = judge.truth[name]
            if truth.numel() == 0 or name == "num_batches_tracked":
                continue
            error = (ours.reshape(truth.shape).double() - truth).abs()
            limit = judge.limit(name)
            largest = [each[torch.isfinite(each)] for each in (error, limit)]
            errors[name] = Errors(*(float(e.max()) if e.numel() else 0.0 for e in largest))
        return errors


def spoil(call: Call, kind: str, rng: random.Random, generator: torch.Generator) -> Call:
    """The call with inputs of this kind."""

    def normal(*size):
        return torch.randn(size, generator=generator, device=call.x.device)

    def keep(tensor):
        return tensor.to(call.x.dtype)

    if kind == "heavy tails":
        return call.change(
            x=keep(normal(*call.x.shape).sign() * torch.exp(2 * normal(*call.x.shape)))
        )
    if kind == "rows of scales":
        return call.change(x=keep(call.x * torch.exp(2 * normal(call.x.shape[0], 1))))
    # Eager's z of 16 bits is the bias alone then, and the statistics of a batch of it no measure.
    is_measured = call.op not in TRAIN_OPS or call.x.dtype == torch.float32
    if kind == "tiny x, large bias" and call.bias is not None and is_measured:
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
    if kind == "non-finite":
        return spoil_with_non_finite(call, rng)
    return call


def spoil_with_non_finite(call: Call, rng: random.Random) -> Call:
    """NaN and infinities in x, in weight or in a vector. In front of the statistics of a batch,
    where eager's own mean of an infinite column may be either, they are in the bias or NaN."""
    names = [name for name in ("x", "weight", "bias", "gamma", "beta") if name in call.tensors()]
    name, count = rng.choice(names), rng.randint(1, 3)
    tensor = call.tensors()[name]
    if call.op in TRAIN_OPS and name in ("x", "weight"):
        changed = tensor.clone()
        changed.view(-1)[rng.randrange(changed.numel())] = torch.nan
        return call.change(**{name: changed})
    return call.change(**{name: put_non_finite(rng, tensor, count)})


def spoil_scale(call: Call, kind: str, rng: random.Random) -> Call:
    """Its sign, and zeros in it."""
    if call.op not in PRODUCT_OPS or call.tensors().get("scale") is None or kind == "as drawn":
        return call
    scale = call.scale.clone()
    if kind == "negative":
        scale = -scale.abs()
    elif kind == "some zeros" and scale.dim():
        scale[:: rng.choice((2, 3, 7))] = 0
    else:
        scale = torch.full_like(scale, -0.0 if kind == "minus zero" else 0.0)
    return call.change(scale=scale)


def draw_call(seed: int, index: int, device: str, limits: Limits, draw: int = 0):
    """The call of this number, and what it is in words; `draw`: the same with other numbers."""
    rng = random.Random(f"call {seed} {index}")
    op = rng.choice(ALL_OPS)
    numerics, kind = rng.choice(NUMERICS_OF[op]), rng.choice(KINDS)
    shape = Shape(*draw_sizes(rng, limits, least_rows=2 if op in TRAIN_OPS else 1), "fuzzed")
    number = 1_000_003 * index + 7919 * draw + seed
    options = {"bias": rng.choice(VECTOR_KINDS), "scale": rng.choice(SCALE_KINDS)}
    options |= {"vectors": rng.choice(VECTOR_KINDS), "seed": number}
    statistics = rng.choice([k for k in VECTOR_KINDS if k not in ("none", "expanded")])
    momentum = rng.choice([None, 0.0, 0.1, 1.0])
    names = ["normal", "model", "positive", "log_normal"]
    # In fp16 the last would overflow, in eager earlier than here.
    distribution = rng.choice(names[: 3 if numerics.dtype == torch.float16 else 4])
    leaky = {
        "multiplier": rng.choice([1.0, -2.0, 0.5, 0.0]),
        "slope": rng.choice([0.1, -0.5, 0.0, 1.0]),
    }
    if op in STATISTICS_OPS:
        options |= {"momentum": momentum} if op in TRAIN_OPS else {}
        call = make_statistics_call(op, shape, numerics, device, statistics=statistics, **options)
        options |= {"statistics": statistics}
    else:
        options |= {"distribution": distribution, **leaky}
        call = make_call(op, shape, numerics, device, **options)
    call = spoil(call, kind, rng, make_generator(device, number))
    scale = rng.choice(SCALES)
    call = spoil_scale(call, scale, rng)
    layouts = [draw_layout(rng), draw_layout(rng)]
    rank, is_ranked = rng.choice(RANKS), rng.random() < 0.25
    call = call.change(x=lay(layouts[0], call.x), keep_z=rng.random() < 0.3)
    if call.weight is not None:
        call = call.change(weight=lay(layouts[1], call.weight))
    words = [f"{op} {numerics} {shape} {kind}", *map(name_layout, layouts)]
    if is_ranked and op in OPS and shape.m % 2 == 0:
        call, words = call.change(x=rank(call.x)), [*words, rank.__name__]
    elif is_ranked and op in OPS and shape.m == 1:
        call, words = call.change(x=drop_rows(call.x)), [*words, "drop_rows"]
    words += [f"scale {scale}"] if scale != "as drawn" else []
    return call, f"{', '.join(words)}, {options}"


def list_forcible(call: Call) -> tuple[str, ...]:
    """Tiles that serve the call."""
    if call.x.device.type != "cuda" or call.op not in PRODUCT_OPS or call.k == 0:
        return ()
    if call.op in STATISTICS_OPS:
        tiles = ["sm80", *(list_statistics_tiles(call) if call.op in TRAIN_OPS else [])]
        is_narrow = call.x.dtype.itemsize == 2
        return tuple(tiles) if call.x.dim() == 2 and is_narrow else ("sm80",)
    is_aligned = call.x.dim() == 2 and call.x.stride(-1) == call.weight.stride(-1) == 1
    if is_aligned and has_whole_pieces(call.x) and has_whole_pieces(call.weight):
        return ("sm80", *list_tiles(call))
    return ("sm80", "cublas") if call.x.dtype.itemsize == 2 else ("sm80", "tf32x3", "split_rows")


def is_within_bounds(call: Call, judge, results) -> bool:
    """Whether what is above twice eager's error is what sums on tensor cores may lose by their
    a-priori bound: eager has those of CUDA cores where sizes or alignments keep cuBLAS from the
    former, and in fp32 results of 16-bit inputs that is all there is to lose."""
    if call.op not in STATISTICS_OPS:
        try:
            judge.check_bound(results["y"].reshape(judge.truth.shape))
        except Rejected:
            return False
        return True
    bounds = judge.moment_bounds | judge.bounds if call.op in TRAIN_OPS else judge.bounds
    for name, ours in results.items():
        if judge.truth[name].numel() == 0 or name == "num_batches_tracked":
            continue
        ours = ours.reshape(judge.truth[name].shape)
        if not judge._mark_wrong(name, ours, judge.limit(name)).any():
            continue
        if name not in bounds:
            return False
        limit = bounds[name] + ulp(judge.truth[name], ours.dtype)
        if judge._mark_wrong(name, ours, limit).any():
            return False
    return True


def is_right(call: Call) -> bool:
    try:
        CallJudge(call).check(call.run_all())
    except Rejected:
        return False
    return True


def is_where_truth_has_it(judge, results) -> bool:
    """Whether all that is not finite, and differs from eager, is as in the truth. An infinite gamma
    makes an infinity of any distance from the mean; eager's may be rounded to 0, or to the other
    side."""
    truths, eagers = judge.truth, judge.eager
    if isinstance(truths, torch.Tensor):
        truths, eagers = {"y": truths}, {"y": eagers}
    for name, ours in results.items():
        truth, eager = truths[name], eagers[name]
        if name == "num_batches_tracked" or truth.numel() == 0:
            continue
        if ours.numel() != eager.numel():
            return False  # some rows alone were judged
        found = find_kinds(ours.reshape(eager.shape))
        differs = found != find_kinds(eager)
        if (differs & (found != find_kinds(truth.to(ours.dtype)))).any():
            return False
    return True


def explain(case_judge: CallJudge, results, error: Rejected) -> str | None:
    """The name of what a rejection stems from, where it is known; each was looked at."""
    call, judge = case_judge.call, case_judge.judge
    above, narrow = "error above" in str(error), call.x.dtype.itemsize == 2
    if above and narrow and call.result_dtype == torch.float32:
        if is_within_bounds(call, judge, results):
            return "sums on tensor cores"
    if above and not narrow and call.op in PRODUCT_OPS and is_within_bounds(call, judge, results):
        # One term of a sum is nearly all of it: its product has 22 digits, eager's 24. A batch
        # norm of few rows divides that by a small deviation.
        return "digits of a split product"
    if above and narrow and call.keep_z and is_right(call.change(keep_z=False)):
        # The raw op alone: without a centre z is returned as it is, and y is normalized from that.
        # A z of nearly equal numbers may be two of 16 bits.
        return "z kept as it is"
    if "mean: NaN is not where" in str(error) and call.op in TRAIN_OPS:
        # Eager's is either, too: it depends on the order in which infinite numbers are added.
        differs = results["mean"].isnan() != judge.eager["mean"].isnan()
        return (
            "the mean of infinite numbers" if judge.truth["mean"][differs].isinf().all() else None
        )
    if "is not where eager has it" in str(error) and call.gamma is not None:
        if is_where_truth_has_it(judge, results):
            return "eager's side of the mean, times infinity"
    if "NaN is not where eager has it" in str(error) and narrow and call.op in OPS:
        # A product that is above the largest number of 16 bits, times a scale of 0.
        if is_where_truth_has_it(judge, results):
            return "eager's overflow of 16 bits"
    if "not one rounding" in str(error) and call.op in STATISTICS_OPS:
        # Within twice eager's error all the same. A row of a softmax that no registers hold goes
        # through memory in 16 bits, as eager's do; and z is rounded less what the bias adds.
        if not judge._mark_wrong("y", results["y"], judge.limit("y")).any():
            return "16-bit logits" if call.op in SOFTMAX_OPS else "z rounded less its bias"
    return None


def draw_case(seed: int, index: int, device: str, limits: Limits, draw: int = 0) -> Case:
    call, words = draw_call(seed, index, device, limits, draw)
    return Case(
        "call",
        words,
        call.tensors(),
        call.run_all,
        lambda is_forced=False: CallJudge(call, is_forced),
        list_forcible(call),
        explain,
        (call.result_shape, call.result_dtype),
    )
