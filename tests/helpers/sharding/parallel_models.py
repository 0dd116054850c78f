"""Models under parallelize_module, FSDP2 and DistributedDataParallel, beside one process that has
all rows: CASES for processes.py, for two processes and for four."""

import copy
import functools
import itertools

import torch
from counted import count_collectives
from dtensor_shards import make_mesh, whole
from norm_modules import IN, OUT
from synchronized import close, own_rows
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, parallel
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

import cutlass_fused
from cutlass_fused import nn
from cutlass_fused.sharding import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    SyncBatchNorm,
)

CASES = {}
LAYERS = {
    "Linear": lambda: nn.Linear(IN, OUT),
    "leaky_relu": lambda: nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1),
    "gelu": lambda: nn.LinearActivation(IN, OUT, "gelu"),
    "prelu": lambda: nn.LinearActivation(IN, OUT, "prelu"),
    "prelu of columns": lambda: nn.LinearActivation(IN, OUT, "prelu", num_parameters=OUT),
    "batch_norm": lambda: nn.LinearScaleBatchNorm1d(IN, OUT, (1, OUT)),
    "batch_norm, constant scale": lambda: nn.LinearScaleBatchNorm1d.from_eager(
        torch.nn.Linear(IN, OUT), 1.5, torch.nn.BatchNorm1d(OUT)
    ),
    "softmax": lambda: nn.LinearBatchNorm1dScaleSoftmax(IN, OUT),
}
ROWS = (3, 5, 2, 6)


def case(test):
    CASES[test.__name__] = test
    return test


def line():
    return make_mesh(distributed.get_world_size())


def draw():
    return torch.randn(sum(ROWS[: distributed.get_world_size()]), IN, dtype=torch.float64)


def find_loss(y):
    weights = torch.linspace(0.5, 1.5, y.shape[-1], dtype=torch.float64)
    return (whole(y).pow(3) * weights).sum()


def compare_states(ours, plain):
    a, b = ours.state_dict(), plain.state_dict()
    assert list(a) == list(b)
    for name, value in b.items():
        close(whole(a[name]), value, name)


def train(ours, plain, prepare=lambda x: x, draw=draw):
    """Two steps of both, then a call in eval."""
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.02) for model in (ours, plain)]
    for _ in range(2):
        x = draw()
        y, expected = ours(prepare(x)), plain(x)
        close(whole(y), expected)
        find_loss(y).backward(), find_loss(expected).backward()
        for (name, p), q in zip(ours.named_parameters(), plain.parameters(), strict=True):
            close(whole(p.grad), q.grad, name)
        for optimizer in optimizers:
            optimizer.step(), optimizer.zero_grad()
        compare_states(ours, plain)
    ours.eval(), plain.eval()
    x = draw()
    with torch.no_grad():
        close(whole(ours(prepare(x))), plain(x))


# ---- parallelize_module ----

# What training of a layer sends, forward.
SENT = {"columns": {}, "rows": {"allreduce_": 1}}
STYLES = {"columns": ColwiseParallel, "rows": RowwiseParallel}


def parallelize(name, style):
    plain = LAYERS[name]().double()
    ours = copy.deepcopy(plain)
    options = {"use_local_output": False}
    layout = {"input_layouts": Replicate()} if style == "rows" else {}
    parallelize_module(ours, line(), STYLES[style](**options, **layout))
    shards = [p for p in ours.parameters() if p.placements != (Replicate(),)]
    assert shards and all(isinstance(b, DTensor) for b in ours.buffers())
    train(ours, plain)
    if name == "Linear":
        return
    with count_collectives() as counted, torch.no_grad():
        ours(draw())
    expected = SENT[style]
    if (name, style) == ("softmax", "columns"):
        expected = {"allreduce_": 2}
    assert counted == expected, counted


for name, style in itertools.product(LAYERS, STYLES):
    CASES[f"{name}, style of {style}"] = functools.partial(parallelize, name, style)


@case
def a_style_of_rows_of_the_batch():
    """Statistics are merged, and nothing else is sent."""
    for name in LAYERS:
        plain = LAYERS[name]().double()
        ours = copy.deepcopy(plain)
        style = SequenceParallel(sequence_dim=0, use_local_output=False)
        parallelize_module(ours, line(), style)
        rows = 2 * distributed.get_world_size()
        mine = slice(2 * distributed.get_rank(), 2 * distributed.get_rank() + 2)

        def cut(x, mine=mine):
            return x[mine].clone()

        def draw_even(rows=rows):
            return torch.randn(rows, IN, dtype=torch.float64)

        train(ours, plain, cut, draw_even)
        with count_collectives() as counted:
            ours.train()(cut(draw_even()))
        assert sum(counted.values()) == ("batch" in name or name == "softmax"), counted


@case
def what_stays_of_parameters():
    """Frozen ones stay so, one of two layers stays one, and each process may keep its numbers."""
    for style in (ColwiseParallel, RowwiseParallel, SequenceParallel):
        model = nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,))
        model.gemm.weight.requires_grad_(False).fill_(distributed.get_rank())
        parallelize_module(model, line(), style(), src_data_rank=None)
        assert not model.gemm.weight.requires_grad and model.scale.requires_grad
        assert (model.gemm.weight.to_local() == distributed.get_rank()).all()
    first, second = nn.Linear(IN, IN), nn.Linear(IN, IN)
    second.weight = first.weight
    model = torch.nn.Sequential(first, second)
    parallelize_module(model, line(), SequenceParallel(sequence_dim=0))
    assert isinstance(first.weight, DTensor) and second.weight is first.weight
    assert second.bias is not first.bias and len(list(model.parameters())) == 3


@case
def layers_in_a_row():
    """By columns, a batch norm of columns, by rows: one sum forward."""
    width = 4 * distributed.get_world_size()
    layers = [nn.LinearActivation(IN, width, "silu"), nn.BatchNorm1d(width)]
    layers += [nn.LinearScaleLeakyReLU(width, OUT, 1.5, 0.2)]
    plain = torch.nn.Sequential(*layers).double()
    plain[1].double()
    ours = copy.deepcopy(plain)
    plan = {
        "0": ColwiseParallel(use_local_output=False),
        "1": ColwiseParallel(use_local_output=False),
        "2": RowwiseParallel(use_local_output=False),
    }
    parallelize_module(ours, line(), plan)
    train(ours, plain)
    with count_collectives() as counted, torch.no_grad():
        assert ours[1](ours[0](draw())).placements == (Shard(1),)
        ours(draw())
    assert counted == {"allreduce_": 1}, counted


@case
def widths_that_processes_do_not_divide():
    """One column more in some; with four processes one of the last layer's has none."""
    for width, out in ((7, 5), (9, 3)):
        layers = [
            nn.LinearActivation(IN, width, "gelu"),
            nn.LinearScaleLeakyReLU(width, out, 2.0, 0.1),
        ]
        layers += [nn.LinearScaleBatchNorm1d(out, out, (out,))]
        plain = torch.nn.Sequential(*layers).double()
        ours = copy.deepcopy(plain)
        plan = {
            "0": ColwiseParallel(use_local_output=False),
            "1": RowwiseParallel(),
            "2": ColwiseParallel(use_local_output=False),
        }
        parallelize_module(ours, line(), plan)
        train(ours, plain)


@case
def other_modules():
    try:
        parallelize_module(torch.nn.Tanh(), line(), ColwiseParallel())
    except NotImplementedError:
        pass
    else:
        raise AssertionError("nothing was raised")
    embedding = torch.nn.Embedding(8, 4)
    parallelize_module(embedding, line(), ColwiseParallel())
    assert embedding.weight.placements == (Shard(1),)


@case
def styles_of_pytorch():
    """Take what is a Linear."""
    width = 4 * distributed.get_world_size()
    layers = [nn.LinearActivation(IN, width, "gelu"), nn.LinearActivation(width, OUT, "tanh")]
    plain = torch.nn.Sequential(*layers).double()
    ours = copy.deepcopy(plain)
    plan = {"0": parallel.ColwiseParallel(), "1": parallel.RowwiseParallel()}
    parallelize_module(ours, line(), plan)
    with count_collectives() as counted, torch.no_grad():
        ours(draw())
    assert counted == {"allreduce_": 1}, counted
    train(ours, plain)


@case
def fused_models_in_parts():
    """The hooks that distribute a layer run, whatever fuse has found."""
    width = 4 * distributed.get_world_size()
    layers = [torch.nn.Linear(IN, width), torch.nn.ReLU(), torch.nn.Linear(width, OUT)]
    plain = torch.nn.Sequential(*layers).double()
    for is_fused_first in (True, False):
        ours = copy.deepcopy(plain)
        for is_first in (True, False):
            if is_first == is_fused_first:
                cutlass_fused.fuse(ours)
            else:
                plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
                parallelize_module(ours, line(), plan)
        train(ours, copy.deepcopy(plain))


# ---- data parallelism ----


class Block(torch.nn.Module):
    """As people write it."""

    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(IN, OUT), torch.nn.Linear(OUT, IN)
        self.norm, self.gain = torch.nn.BatchNorm1d(OUT), torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        h = torch.nn.functional.gelu(self.up(x))
        return x + torch.tanh(self.down(self.norm(h)) * self.gain)


def build_fused():
    """A model as it is, whose chains are found."""
    model = torch.nn.Sequential(Block(), torch.nn.Linear(IN, OUT), torch.nn.ReLU())
    return model.double(), cutlass_fused.fuse


def build_activations():
    layers = [LAYERS[name]() for name in ("gelu", "prelu", "prelu of columns")]
    for i, layer in enumerate(layers[1:], 1):
        layers[i] = type(layer)(OUT, OUT, layer.activation)
    return torch.nn.Sequential(*layers).double(), lambda model: None


def build_modules():
    layers = [nn.LinearScaleBatchNorm1d(IN, IN, (IN,)), nn.LinearActivation(IN, IN, "silu")]
    layers += [nn.LinearBatchNorm1dScaleSoftmax(IN, OUT)]
    return torch.nn.Sequential(*layers).double(), lambda model: None


MODELS = {"fused": build_fused, "activations": build_activations, "modules": build_modules}


def average_loss(y):
    """Of this process, so that the mean over the processes is that of all rows."""
    rows = sum(ROWS[: distributed.get_world_size()])
    return find_loss(y) * (distributed.get_world_size() / rows)


def data_parallel(name, way):
    """Rows of its own in each process, statistics of all: as one process with all rows."""
    plain, change = MODELS[name]()
    ours = SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))
    change(ours)
    if name == "fused":
        reports = [m for m in ours.modules() if "forward" in m.__dict__]
        assert reports, "nothing was fused"
    if way == "DDP":
        model = DistributedDataParallel(ours)
    elif way == "DDP, static graph":
        model = DistributedDataParallel(ours, static_graph=True, gradient_as_bucket_view=True)
    else:
        for layer in ours if way == "FSDP of layers" else ():
            if list(layer.parameters()):
                fully_shard(layer, mesh=line())
        model = fully_shard(ours, mesh=line())
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.02, momentum=0.9) for m in (model, plain)]
    for _ in range(3):
        x = draw()
        y, expected = model(own_rows(x, ROWS)), plain(x)
        close(y, own_rows(expected, ROWS))
        average_loss(y).backward()
        (find_loss(expected) / x.shape[0]).backward()
        for (key, p), q in zip(ours.named_parameters(), plain.parameters(), strict=True):
            close(whole(p.grad), q.grad, key)
        for optimizer in optimizers:
            optimizer.step(), optimizer.zero_grad()
    compare_states(ours, plain)
    model.eval(), plain.eval()
    x = draw()
    with torch.no_grad():
        close(model(own_rows(x, ROWS)), own_rows(plain(x), ROWS))


WAYS = ("DDP", "DDP, static graph", "FSDP", "FSDP of layers")
for name, way in itertools.product(MODELS, WAYS):
    CASES[f"{name}, {way}"] = functools.partial(data_parallel, name, way)


@case
def checkpoints_of_shards():
    """A state dict of FSDP2 loads into the plain model, and back."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        set_model_state_dict,
    )

    plain, _ = build_modules()
    ours = fully_shard(SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain)), mesh=line())
    options = StateDictOptions(full_state_dict=True)
    state = get_model_state_dict(ours, options=options)
    assert list(state) == list(plain.state_dict())
    for key, value in plain.state_dict().items():
        close(state[key], value, key)
    other, _ = build_modules()
    set_model_state_dict(ours, other.state_dict(), options=options)
    compare_states(ours, other)
