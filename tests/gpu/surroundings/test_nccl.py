"""Training under DistributedDataParallel and FSDP2 over NCCL, in a group of this process alone: the
same bits as without them."""

import copy

import pytest
import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from cutlass_fused import nn

pytestmark = pytest.mark.gpu

ROWS, WIDTH, CLASSES, STEPS = 512, 512, 64, 4


@pytest.fixture(scope="module")
def group():
    if not distributed.is_nccl_available():
        pytest.skip("this torch has no NCCL")
    torch.cuda.set_device(0)
    distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1)
    yield distributed.device_mesh.init_device_mesh("cuda", (1,))
    distributed.destroy_process_group()


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def model(request):
    torch.manual_seed(0)
    layers = [
        nn.Linear(WIDTH, WIDTH),
        nn.LinearScaleLeakyReLU(WIDTH, WIDTH, 1.5, 0.2),
        nn.LinearScaleBatchNorm1d(WIDTH, WIDTH, (WIDTH,)),
        nn.LinearBatchNorm1dScaleSoftmax(WIDTH, CLASSES),
    ]
    return torch.nn.Sequential(*layers).to("cuda", request.param)


def train(model, parameters, accumulate=False):
    """The parameters and buffers after some steps."""
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    generator = torch.Generator("cuda").manual_seed(1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(1 + accumulate):
            x = torch.randn(ROWS, WIDTH, device="cuda", generator=generator)
            y = model(x.to(next(iter(parameters)).dtype)).float()
            (y * torch.linspace(0.5, 1.5, CLASSES, device="cuda")).square().sum().backward()
        optimizer.step()
    state = {name.removeprefix("module."): value for name, value in model.state_dict().items()}
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value
        for name, value in state.items()
    }


def check(found, plain, accumulate):
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    expected = train(plain, list(plain.parameters()), accumulate)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    moved = [name for name in before if not torch.equal(before[name], expected[name])]
    # A bias in front of a batch norm has a gradient of 0, if it is not rounded.
    assert set(before) - set(moved) <= {"2.gemm.bias", "3.gemm.bias"}


@pytest.mark.parametrize("accumulate", [False, True], ids=["each step", "accumulated"])
@pytest.mark.parametrize("as_view", [False, True], ids=["copied", "buckets as gradients"])
def test_data_parallel(group, model, as_view, accumulate):
    plain = copy.deepcopy(model)
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=as_view)
    check(train(parallel, list(model.parameters()), accumulate), plain, accumulate)


@pytest.mark.parametrize("accumulate", [False, True], ids=["each step", "accumulated"])
@pytest.mark.parametrize("reshard", [False, True], ids=["kept whole", "resharded"])
def test_sharded(group, model, reshard, accumulate):
    """Its parameters come and go, written to behind every count of versions."""
    plain = copy.deepcopy(model)
    for layer in (*model, model):
        fully_shard(layer, mesh=group, reshard_after_forward=reshard)
    check(train(model, list(model.parameters()), accumulate), plain, accumulate)
