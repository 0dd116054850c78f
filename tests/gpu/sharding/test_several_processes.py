"""Batch norms that share statistics, DTensors, DDP and FSDP2 on GPUs: NCCL in this process alone,
gloo with two processes that share a GPU, NCCL with a process on each GPU.

All cases of a way are one test: processes are started once, whichever worker has it.
"""

import cuda_cases
import pytest
import torch
from processes import run_cases, run_in_processes
from torch import distributed

pytestmark = pytest.mark.gpu

MODULES = [cuda_cases.__name__]
# Of a way, with all that its processes import and link.
SECONDS = 150


def judge_all(found):
    failed = {name: said for name, said in found.items() if said}
    assert not failed, f"{len(failed)} of {len(found)}: {', '.join(failed)}\n" + "\n".join(
        f"{name}: {said}" for name, said in failed.items()
    )
    assert found.keys() == cuda_cases.CASES.keys()


def require_nccl():
    if not distributed.is_nccl_available():
        pytest.skip("this torch has no NCCL")


def test_nccl_in_this_process():
    require_nccl()
    torch.cuda.set_device(0)
    store = distributed.HashStore()
    distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
    try:
        judge_all(run_cases(MODULES))
    finally:
        cuda_cases.line.cache_clear()
        distributed.destroy_process_group()


def test_gloo_in_two_processes(tmp_path):
    judge_all(run_in_processes(MODULES, tmp_path, 2, "gloo", SECONDS))


@pytest.mark.parametrize("count", [2, 4])
def test_nccl_on_each_gpu(tmp_path, count):
    require_nccl()
    if torch.cuda.device_count() < count:
        pytest.skip(f"there must be {count} GPUs, got {torch.cuda.device_count()}")
    judge_all(run_in_processes(MODULES, tmp_path, count, "nccl", SECONDS))
