"""Batch norms that share statistics, DTensors, DDP and FSDP2 on GPUs: NCCL in this process alone,
gloo with two processes that share the GPU, NCCL with a process on each GPU."""

import cuda_cases
import pytest
import torch
from processes import run_cases, run_in_processes
from torch import distributed

pytestmark = pytest.mark.gpu

WAYS = ("NCCL alone", "gloo in two", "NCCL on each GPU")
SECONDS = 150


@pytest.fixture(scope="module", params=WAYS)
def found(request, tmp_path_factory):
    way = request.param
    if "NCCL" in way and not distributed.is_nccl_available():
        pytest.skip("this torch has no NCCL")
    if way == "NCCL alone":
        torch.cuda.set_device(0)
        store = distributed.HashStore()
        distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
        try:
            yield run_cases(["cuda_cases"])
        finally:
            cuda_cases.line.cache_clear()
            distributed.destroy_process_group()
        return
    count, backend = 2, "gloo"
    if way == "NCCL on each GPU":
        count, backend = 4 if torch.cuda.device_count() >= 4 else 2, "nccl"
        if torch.cuda.device_count() < 2:
            pytest.skip(f"there must be 2 GPUs, got {torch.cuda.device_count()}")
    folder = tmp_path_factory.mktemp("processes")
    yield run_in_processes(["cuda_cases"], folder, count, backend, SECONDS)


@pytest.mark.parametrize("name", cuda_cases.CASES)
def test_in_processes(found, name):
    assert not found[name], found[name]
