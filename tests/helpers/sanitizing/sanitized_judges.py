"""Who judges the products of a unit.

racecheck does not get over cuBLAS's kernels for tensor cores, which the judge's yardstick has.
Under it a CPU judges, and results are held to the a-priori bound of the truth. Other tests hold
the same kernels to the yardstick itself.
"""

import torch
from accuracy import Judge

PLACE = {"device": "cuda"}


def make_judge(call, rows=None):
    return Judge(call.map_tensors(torch.Tensor.cpu) if PLACE["device"] == "cpu" else call, rows)


def check(judge, result):
    """By the rule of all tests where the GPU judges."""
    if PLACE["device"] == "cpu":
        check_bound(judge, result)
    else:
        judge.check(result)


def check_bound(judge, result):
    call = judge.call
    assert (result.shape, result.dtype) == (call.result_shape, call.result_dtype)
    result = result.reshape(call.m, call.n)
    result = result if judge.rows is None else result[judge.rows]
    judge.check_bound(result.to(PLACE["device"]))
