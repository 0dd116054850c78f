"""Modules that PyTorch shards, beside the plain ones treated alike: CASES for processes.py."""

import functools
import itertools

import torch
from dtensor_shards import cut, make_mesh, whole
from norm_modules import IN, OUT
from plain import (
    PlainLinearBatchNorm1dScaleSoftmax,
    PlainLinearScaleBatchNorm1d,
    PlainLinearScaleLeakyReLU,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode

import cutlass_fused
from cutlass_fused import nn

CASES = {}
# Ours and the plain one, which draw the same parameters.
FUSED = {
    "leaky_relu": (nn.LinearScaleLeakyReLU, PlainLinearScaleLeakyReLU, (IN, OUT, 2.0, 0.1)),
    "batch_norm": (nn.LinearScaleBatchNorm1d, PlainLinearScaleBatchNorm1d, (IN, OUT, (OUT,))),
    "softmax": (
        nn.LinearBatchNorm1dScaleSoftmax,
        PlainLinearBatchNorm1dScaleSoftmax,
        (IN, OUT),
    ),
}
ALONE = {
    "Linear": (nn.Linear, torch.nn.Linear, (IN, OUT)),
    "BatchNorm1d": (nn.BatchNorm1d, torch.nn.BatchNorm1d, (OUT,)),
    "Softmax": (nn.Softmax, torch.nn.Softmax, (1,)),
}
ALL = FUSED | ALONE


# In float64, but where that is PyTorch's own to compute.
NARROW = ("BatchNorm1d", "Softmax")


def build(name):
    models = []
    for kind in ALL[name][:2]:
        torch.manual_seed(7)
        models.append(kind(*ALL[name][2]).to(find_dtype(name)))
    return models


def find_dtype(name):
    return torch.float32 if name in NARROW else torch.float64


def draw(name):
    return torch.randn(8, OUT if name in NARROW else IN, dtype=find_dtype(name))


def close(ours, plain):
    ours, plain = whole(ours), whole(plain)
    tolerance = 1e-9 if ours.dtype == torch.float64 else 1e-4
    torch.testing.assert_close(ours, plain, rtol=tolerance, atol=tolerance)


def compare_states(ours, plain):
    a, b = ours.state_dict(), plain.state_dict()
    assert list(a) == list(b)
    for name in a:
        close(a[name], b[name])


def step(model, optimizer, x):
    """y and the gradient of x."""
    x.requires_grad_()
    y = model(x)
    # Not of squares, to which a batch norm gives one sum whatever x is.
    loss = whole(y).pow(3) * torch.linspace(0.5, 1.5, y.shape[-1])
    loss.mean().backward()
    if optimizer is not None:
        optimizer.step(), optimizer.zero_grad()
    return y, x.grad


def train(ours, plain, draw, cut=lambda x: x):
    """Steps of both on the same numbers, which ours gets cut; then a call in eval, without
    gradients."""
    optimizers = [
        torch.optim.SGD(list(model.parameters()), lr=0.1, momentum=0.9)
        if list(model.parameters())
        else None
        for model in (ours, plain)
    ]
    for _ in range(2):
        x = draw()
        for pair in zip(
            step(ours, optimizers[0], cut(x.clone())), step(plain, optimizers[1], x), strict=True
        ):
            close(*pair)
        compare_states(ours, plain)
    ours.eval(), plain.eval()
    with torch.no_grad():
        x = draw()
        close(ours(cut(x)), plain(x))


def shard(name, part):
    """FSDP2, of the module itself, of its part, or of a model that holds it. Each process has rows
    of its own."""
    models = [torch.nn.Sequential(torch.nn.ReLU(), model) for model in build(name)]
    for model in models:
        places = {"itself": [model[1]], "gemm": [model[1].gemm] if part == "gemm" else []}
        if part == "both":
            places["both"] = [model[1].gemm, model]
        for place in places.get(part, [model]):
            fully_shard(place, mesh=make_mesh(2))
    torch.manual_seed(torch.distributed.get_rank())
    train(*models, functools.partial(draw, name))


for name, part in itertools.product(ALL, ("itself", "gemm", "model", "both")):
    if name in FUSED or part == "model" or (part == "itself" and name != "Softmax"):
        CASES[f"{name}-FSDP of {part}"] = functools.partial(shard, name, part)


# Ways to parallelize gemm in which what follows it gets a whole tensor.
STYLES = {
    "columns": lambda: ColwiseParallel(output_layouts=Replicate()),
    "rows": lambda: RowwiseParallel(input_layouts=Replicate()),
}


def parallelize_gemm(name, style):
    ours, plain = build(name)
    for model in (ours, plain):
        parallelize_module(model, make_mesh(2), {"gemm": STYLES[style]()})
    train(ours, plain, functools.partial(draw, name))


for name, style in itertools.product(FUSED, STYLES):
    CASES[f"{name}-gemm by {style}"] = functools.partial(parallelize_gemm, name, style)


class Pair(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(7)
        self.first, self.second = kind(IN, OUT).double(), kind(OUT, 6).double()

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def case(test):
    CASES[test.__name__] = test
    return test


@case
def linears_by_columns_then_rows():
    """A transformer shards so: one all-reduce in each pass, as of the plain modules."""
    models, counts = [Pair(nn.Linear), Pair(torch.nn.Linear)], []
    plan = {"first": ColwiseParallel(), "second": RowwiseParallel()}
    x = torch.randn(2, 4, IN).double().requires_grad_()
    for model in models:
        parallelize_module(model, make_mesh(2), plan)
        with CommDebugMode() as communication:
            model(x).square().sum().backward()
        counts.append(communication.get_comm_counts())
        model.zero_grad()
    assert counts[0] == counts[1] and sum(counts[0].values()) > 0, counts
    train(*models, lambda: torch.randn(2, 4, IN).double())


def cut_columns(name, module, mesh):
    for key, parameter in module.named_parameters(recurse=False):
        placement = Shard(0) if parameter.numel() > 1 else Replicate()
        leaf = distribute_tensor(parameter.detach(), mesh, [placement], src_data_rank=None)
        module.register_parameter(key, torch.nn.Parameter(leaf))
    for key, buffer in module.named_buffers(recurse=False):
        placement = Shard(0) if buffer.dim() else Replicate()
        module.register_buffer(
            key, distribute_tensor(buffer, mesh, [placement], src_data_rank=None)
        )


class Silence(TorchDispatchMode):
    """Nothing is sent within. CommDebugMode hooks every module, which then calls its parts."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # what that calls comes by here
        assert "c10d" not in op.namespace, op
        return op(*args, **(kwargs or {}))


def distribute(name, way):
    """All parameters and buffers, beside the plain module on whole tensors."""
    ours, plain = build(name)
    distribute_module(ours, make_mesh(2), cut_columns if way == "columns" else None)
    placement = Shard(0) if way == "rows" else Replicate()
    if name in ("BatchNorm1d", "Softmax") and way == "columns":
        placement = Shard(1)
    if way == "columns" and name not in ("softmax", "Softmax"):
        x = draw(name)
        with Silence(), torch.no_grad():
            y = ours(cut(x, placement))
        close(y, plain(x))  # both have seen one batch
    train(ours, plain, functools.partial(draw, name), lambda x: cut(x, placement))


for name, way in itertools.product(ALL, ("columns", "rows", "copies")):
    CASES[f"{name}-all of it by {way}"] = functools.partial(distribute, name, way)


@case
def splits_of_gathered_weights():
    """FSDP fills the memory of a weight anew in each forward pass, which PyTorch does not count: no
    split of it is kept."""
    model, found = torch.nn.Sequential(nn.Linear(IN, OUT)), []
    fully_shard(model, mesh=make_mesh(2))
    cache = cutlass_fused.weights.splits.SplitCache(lambda weight, precision: weight.clone())

    def look(module, arguments):
        assert type(module.weight) is torch.nn.Parameter
        found.append(cache.find(module.weight, "ieee"))

    model[0].register_forward_pre_hook(look)
    with torch.no_grad():
        model(torch.randn(2, IN))
        model[0].weight.mul_(2)
        model(torch.randn(2, IN))
    assert found == [None, None] and len(cache) == 0
    # The split of any other weight is kept.
    assert cache.find(torch.randn(OUT, IN), "ieee") is not None
