"""Runs a call and has it judged: the one way in which tests look at a result."""

from __future__ import annotations

import gc

import torch
from accuracy import Judge
from accuracy_statistics import StatisticsJudge
from calls import STATISTICS_OPS, Call

from cutlass_fused.precision import bound_error

# Above this many elements a case pays only for the cheapest opcheck.
LARGE = 2**24
_traced: set[tuple] = set()


def describe_signature(call: Call) -> tuple:
    """What tracing can tell apart: everything but sizes."""
    tensors = {name: (t.dtype, t.dim(), t.device.type) for name, t in call.tensors().items()}
    options = (call.precision, call.out_dtype, call.momentum is None, call.keep_z)
    return (call.op, *options, tuple(sorted(tensors.items(), key=str)))


def check_registration(call: Call, results: dict[str, torch.Tensor]) -> None:
    """torch.library.opcheck with the call's own arguments; `results` are what it gave, by name.

    Every call checks the schema (what it says is modified, and nothing else, and nothing is
    aliased) and the fake (shape, dtype, strides). Tracing with dynamic shapes takes longer and is
    repeated only where it can differ; it compares results as numbers, so those must hold no NaN.
    """
    call = call.copy_updated()
    utils = ["test_faketensor"]
    tensors = [*call.tensors().values(), *results.values()]
    if max(tensor.numel() for tensor in tensors) <= LARGE:
        utils.append("test_schema")
        signature = describe_signature(call)
        if signature not in _traced and not any(t.isnan().any() for t in results.values()):
            _traced.add(signature)
            utils.append("test_aot_dispatch_dynamic")
    torch.library.opcheck(call.overload(), call.arguments(), test_utils=utils)


def poison_memory(shape, dtype, device) -> int:
    """Leaves NaN in the block that the next result of this shape gets; returns its address."""
    garbage = torch.full(shape, torch.nan, dtype=dtype, device=device)
    return garbage.data_ptr()


def run_poisoned(call: Call) -> torch.Tensor:
    """The op's result, in memory that held NaN before: elements that are not written show."""
    poison_memory(call.result_shape, call.result_dtype, call.x.device)
    return call.run()


def run_all_poisoned(call: Call) -> dict[str, torch.Tensor]:
    """Everything that the op writes, by name, in memory that held NaN before."""
    call = call.copy_updated()
    garbage = [
        torch.full(shape, torch.nan, dtype=dtype, device=call.x.device)
        for shape, dtype in (
            *2 * ((call.result_shape, call.result_dtype),),
            *2 * (((call.n,), torch.float32),),
        )
    ]
    del garbage
    return call.name_results(call.run())


def check_call(call: Call, rows=None) -> Judge | StatisticsJudge:
    """Run, judge and opcheck one call.

    `rows` limits the judgement to these rows of x; of the others it is only seen that they were
    written, so there must be no NaN among the inputs. Statistics depend on all rows.
    """
    if call.op in STATISTICS_OPS:
        judge = StatisticsJudge(call)
        results = run_all_poisoned(call)
        judge.check(results)
        check_registration(call, results)
        return judge
    judge = Judge(call, rows)
    result = run_poisoned(call)
    judge.check(result)
    if rows is not None:
        assert not result.isnan().any(), "elements outside the judged rows were not written"
    check_registration(call, {"y": result})
    return judge


def check_nothing_else_is_written(call: Call) -> torch.Tensor:
    """Inputs and the memory around them keep their bits; the op's result, which lies elsewhere."""
    memory = {
        name: torch.as_strided(t, (t.untyped_storage().nbytes() // t.itemsize,), (1,), 0)
        for name, t in call.tensors().items()
    }
    before = {name: tensor.view(torch.uint8).clone() for name, tensor in memory.items()}
    result = call.run()
    for name, tensor in memory.items():
        assert torch.equal(tensor.view(torch.uint8), before[name]), name
        assert result.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()
    return result


def check_memory_is_given_back(call: Call) -> None:
    """No call keeps its workspace or result."""
    call.run()
    gc.collect()  # or what others left might be given back in between
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(10):
        call.run()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


def check_bound(call: Call, result: torch.Tensor) -> None:
    """Each output of a Linear within what cutlass_fused.precision promises."""
    exact = call.x.double() @ call.weight.double().t() + call.bias.double()
    size = call.x.double().abs() @ call.weight.double().abs().t()
    limit = bound_error(call.k, call.precision) * size + 2.0**-22 * (size + call.bias.abs())
    wrong = (result.double() - exact).abs() > limit + 2.0**-149
    assert not wrong.any(), wrong.nonzero()[:5].tolist()
