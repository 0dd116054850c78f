"""Batch norms whose statistics are those of several processes, beside one process that has the
whole batch: CASES for processes.py, for any number of processes."""

import copy
import functools
import itertools

import torch
from counted import count_collectives
from dtensor_shards import make_mesh, message
from norm_modules import IN, OUT
from torch import distributed
from torch.distributed.tensor import DTensor, Replicate

import cutlass_fused
from cutlass_fused import functional, nn
from cutlass_fused.sharding import SyncBatchNorm

CASES = {}
KINDS = {
    "scale": (nn.LinearScaleBatchNorm1d, (IN, OUT, (OUT,)), {}),
    "scale of one": (nn.LinearScaleBatchNorm1d, (IN, OUT, (1,)), {"bias": False}),
    "softmax": (nn.LinearBatchNorm1dScaleSoftmax, (IN, OUT), {}),
    "alone": (nn.BatchNorm1d, (IN,), {}),
    "mean of batches": (nn.BatchNorm1d, (IN,), {"momentum": None}),
    "not affine": (nn.BatchNorm1d, (IN,), {"affine": False}),
    "not tracked": (nn.LinearScaleBatchNorm1d, (IN, OUT, (OUT,)), {"track_running_stats": False}),
}
# Rows of each process: as many, not as many, none or one in some, one in all.
ROWS = {
    "even": (4, 4, 4, 4),
    "uneven": (3, 5, 7, 2),
    "some empty": (0, 3, 0, 6),
    "single rows": (1, 1, 1, 1),
}


def case(test):
    CASES[test.__name__] = test
    return test


def own_rows(whole, rows):
    """Those of this process, as a leaf."""
    counts = rows[: distributed.get_world_size()]
    return whole.split(counts)[distributed.get_rank()].clone()


def draw(rows, width=IN, dtype=torch.float64):
    return torch.randn(sum(rows[: distributed.get_world_size()]), width, dtype=dtype)


def build(name, convert=SyncBatchNorm.convert_sync_batchnorm):
    kind, arguments, options = KINDS[name]
    plain = kind(*arguments, **options).double()
    return convert(copy.deepcopy(plain)), plain


def run_backward(model, x):
    y = model(x)
    # Not of squares, to which a batch norm gives one sum whatever x is.
    (y.pow(3) * torch.linspace(0.5, 1.5, y.shape[1], dtype=y.dtype)).sum().backward()
    return y


def close(found, expected, name=""):
    torch.testing.assert_close(
        found, expected, rtol=1e-9, atol=1e-9, msg=lambda text: f"{name}: {text}"
    )


def equal_everywhere(tensor):
    """The same bits in all processes."""
    others = [torch.empty_like(tensor) for _ in range(distributed.get_world_size())]
    distributed.all_gather(others, tensor.detach())
    return all(torch.equal(other, tensor) for other in others)


def check_modules(name, rows, convert=SyncBatchNorm.convert_sync_batchnorm):
    """Two steps, then eval: results, all gradients, all buffers."""
    ours, plain = build(name, convert)
    for _ in range(2):
        ours.zero_grad(), plain.zero_grad()
        whole = draw(rows)
        x, whole = own_rows(whole, rows).requires_grad_(), whole.requires_grad_()
        y, expected = run_backward(ours, x), run_backward(plain, whole)
        close(y, own_rows(expected, rows))
        close(x.grad, own_rows(whole.grad, rows))
        for (key, a), b in zip(ours.named_parameters(), plain.parameters(), strict=True):
            distributed.all_reduce(a.grad)
            close(a.grad, b.grad, key)
    for (key, a), b in zip(ours.state_dict().items(), plain.state_dict().values(), strict=True):
        close(a, b, key)
        assert equal_everywhere(a), key
    ours.eval(), plain.eval()
    if name == "not tracked":
        return
    whole = draw(rows)
    with count_collectives() as counted:
        close(ours(own_rows(whole, rows)), own_rows(plain(whole), rows))
    assert not counted


for name, rows in itertools.product(KINDS, ROWS):
    CASES[f"{name}, {rows}"] = functools.partial(check_modules, name, ROWS[rows])
for name in ("scale", "softmax"):
    CASES[f"{name}, converted by PyTorch"] = functools.partial(
        check_modules, name, ROWS["uneven"], torch.nn.SyncBatchNorm.convert_sync_batchnorm
    )


@case
def what_is_sent():
    """The statistics once, the sums once; without gradients the statistics."""
    for name in ("scale", "softmax", "alone"):
        ours, _ = build(name)
        x = own_rows(draw(ROWS["uneven"]), ROWS["uneven"]).requires_grad_()
        with count_collectives() as counted:
            y = ours(x)
        assert counted == {"allgather_": 1}, counted
        with count_collectives() as counted:
            y.sum().backward()
        assert counted == {"allreduce_": 1}, counted
        with count_collectives() as counted, torch.no_grad():
            ours(x)
        assert counted == {"allgather_": 1}, counted


@case
def no_rows_at_all():
    """Nothing moves, but the batch is counted."""
    ours, _ = build("scale")
    before = copy.deepcopy(ours.state_dict())
    x = torch.empty(0, IN, dtype=torch.float64, requires_grad=True)
    y = run_backward(ours, x)
    assert y.shape == (0, OUT) and x.grad.shape == x.shape
    for key, value in ours.state_dict().items():
        expected = before[key] + 1 if key == "bn.num_batches_tracked" else before[key]
        assert torch.equal(value, expected), key


@case
def far_means_in_fp32():
    """Each process is far from 0 and from the others beside the deviation: within twice the error
    that this package has on the whole batch, and an ulp. (PyTorch's sums on a CPU are of fp64.)"""
    rows = (40, 24, 33, 57)
    whole = draw(rows, OUT, torch.float32) + 1000
    start = 0
    for i, count in enumerate(rows[: distributed.get_world_size()]):
        whole[start : start + count] += i
        start += count
    ours, plain = SyncBatchNorm(OUT), nn.BatchNorm1d(OUT)
    truth = torch.nn.BatchNorm1d(OUT).double()
    y, eager, exact = ours(own_rows(whole, rows)), plain(whole), truth(whole.double())
    pairs = {"y": (y, eager, exact, True)}
    for key in ("running_mean", "running_var"):
        pairs[key] = (*(getattr(each, key) for each in (ours, plain, truth)), False)
    for key, (a, b, c, is_cut) in pairs.items():
        allowed = 2 * (b.double() - c).abs().max() + torch.finfo(torch.float32).eps * c.abs().max()
        expected = own_rows(c, rows) if is_cut else c
        assert (a.double() - expected).abs().max() <= allowed, key


@case
def results_of_16_bits():
    for dtype in (torch.bfloat16, torch.float16):
        rows = ROWS["uneven"]
        whole = draw(rows).to(dtype)
        ours = SyncBatchNorm.convert_sync_batchnorm(
            nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,)).to(dtype)
        )
        truth = copy.deepcopy(ours).double()
        y, exact = ours(own_rows(whole, rows)), truth(own_rows(whole, rows).double())
        assert y.dtype == dtype
        error, eps = (y - exact).abs().max(), torch.finfo(dtype).eps
        # z is rounded, then y; both are of a few times 1.
        assert error <= 4 * eps * exact.abs().max(), (error, eps)


@case
def autocast():
    """The dtypes of one process, and its digits of 16 bits."""
    rows = ROWS["uneven"]
    for name in ("scale", "softmax", "alone"):
        ours, plain = build(name)
        ours, plain, whole = ours.float(), plain.float(), draw(rows).float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y, expected = ours(own_rows(whole, rows)), plain(whole)
        assert y.dtype == expected.dtype
        eps = 8 * torch.finfo(torch.bfloat16).eps
        torch.testing.assert_close(y, own_rows(expected, rows), rtol=eps, atol=eps)


@case
def vectors_of_other_dtypes():
    """Of 16 bits beside a product in fp32, as where the scale is."""
    rows, bf16 = ROWS["uneven"], torch.bfloat16
    x, scale = draw(rows).to(bf16), torch.randn(OUT)
    weight, *vectors = (torch.randn(OUT, IN).to(bf16), *(torch.randn(OUT) for _ in range(5)))
    bias, mean, var, gamma, beta = (each.to(bf16) for each in vectors)

    def run(rows_of_x, group):
        moved = mean.clone(), var.abs()
        options = {"training": True, "process_group": group}
        y = functional.linear_scale_batch_norm(
            rows_of_x, weight, bias, scale, *moved, gamma, beta, **options
        )
        assert y.dtype == torch.float32
        return y, *moved

    y, *moved = run(own_rows(x, rows), distributed.group.WORLD)
    expected, *whole = run(x, None)
    torch.testing.assert_close(y, own_rows(expected, rows), rtol=0.02, atol=0.02)
    torch.testing.assert_close(moved, whole)


@case
def groups_of_some():
    """Pairs of processes have statistics of their own; who is in no group has none to share."""
    world, rank = distributed.get_world_size(), distributed.get_rank()
    pairs = [distributed.new_group([i, i + 1]) for i in range(0, world, 2)]
    first = distributed.new_group([0, 1])
    whole = draw(ROWS["even"])
    x, mine = own_rows(whole, ROWS["even"]), rank // 2
    ours = SyncBatchNorm(IN, dtype=torch.float64, process_group=pairs[mine])
    plain = torch.nn.BatchNorm1d(IN).double()
    expected = plain(whole[8 * mine : 8 * mine + 8])
    close(ours(x), expected[4 * (rank % 2) :][:4])
    close(ours.running_var, plain.running_var)
    outside = SyncBatchNorm(IN, dtype=torch.float64, process_group=first)
    batch = whole[:8] if rank < 2 else x
    expected = torch.nn.BatchNorm1d(IN).double()(batch)
    close(outside(x), expected[4 * rank :][:4] if rank < 2 else expected)


@case
def a_group_of_this_process():
    """No statistics to share: the same as without a group, and nothing is sent."""
    alone = [distributed.new_group([i]) for i in range(distributed.get_world_size())]
    x, weight = torch.randn(5, IN), torch.randn(OUT, IN)
    run = functools.partial(functional.linear_scale_batch_norm, x, weight, *(None,) * 4)
    with count_collectives() as counted:
        y = run(training=True, process_group=alone[distributed.get_rank()])
    assert torch.equal(y, run(training=True)) and not counted


@case
def second_derivatives():
    rows = ROWS["uneven"]
    for name in ("scale", "alone"):
        ours, plain = build(name)
        whole = draw(rows)
        found = differentiate_twice(ours, own_rows(whole, rows), is_share=True)
        expected = differentiate_twice(plain, whole, is_share=False)
        close(found[0], own_rows(expected[0], rows))
        close(found[1:], expected[1:])


def differentiate_twice(model, x, is_share):
    """Of x in this process, of the parameters in all."""
    x.requires_grad_()
    parameters = [p for key, p in model.named_parameters() if "bias" not in key]
    y = model(x).sin()
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    grads = torch.autograd.grad(grad.pow(2).sum(), [x, *parameters])
    for each in grads[1:] if is_share else ():
        distributed.all_reduce(each)
    return grads


@case
def compiled():
    """Around what is sent."""
    if distributed.get_world_size() > 2:
        return  # the same graphs
    ours, plain = build("scale")
    whole, rows = draw(ROWS["uneven"]), ROWS["uneven"]
    x = own_rows(whole, rows).requires_grad_()
    whole.requires_grad_()
    y = run_backward(torch.compile(ours, backend="aot_eager"), x)
    close(y, own_rows(run_backward(plain, whole), rows))
    close(x.grad, own_rows(whole.grad, rows))
    torch._dynamo.reset()


@case
def fused_models():
    """fuse leaves these batch norms as they are, and sees that one has been converted."""
    plain = torch.nn.Sequential(
        torch.nn.Linear(IN, OUT), torch.nn.BatchNorm1d(OUT), torch.nn.ReLU()
    ).double()
    whole, rows = draw(ROWS["uneven"]), ROWS["uneven"]
    for is_fused_first in (False, True):
        ours, expected = copy.deepcopy(plain), copy.deepcopy(plain)(whole)
        for is_first in (True, False):
            if is_first == is_fused_first:
                cutlass_fused.fuse(ours)
                ours(whole)
            else:
                ours = SyncBatchNorm.convert_sync_batchnorm(ours)
                assert type(ours[1]) is SyncBatchNorm
                ours[1].reset_running_stats()
        close(ours(own_rows(whole, rows)), own_rows(expected, rows))


@case
def what_does_not_fit():
    """Said before anything is sent."""
    group = distributed.group.WORLD
    x, vector = torch.randn(3, IN), torch.randn(IN + 1)
    run = functools.partial(functional.batch_norm, x, training=True, process_group=group)
    with count_collectives() as counted:
        said = message(lambda: run(vector, None))
        assert said.startswith("batch_norm: running_mean must have shape"), said
        said = message(lambda: run(None, None, momentum=None, num_batches_tracked=torch.zeros(1)))
        assert said.startswith("batch_norm: num_batches_tracked must be int64"), said
        weight = torch.randn(OUT, IN)
        many = functools.partial(functional.linear_scale_batch_norm, training=True)
        said = message(lambda: many(x, weight, vector, *(None,) * 3, process_group=group))
        assert said.startswith("linear_scale_batch_norm: bias must have shape"), said
        sharded = DTensor.from_local(x, make_mesh(distributed.get_world_size()), [Replicate()])
        of_shards = functools.partial(functional.batch_norm, sharded, None, None, training=True)
        said = message(lambda: of_shards(process_group=group))
        assert said.startswith("batch_norm: process_group must be None beside DTensors"), said
        for other in ("all", 3, make_mesh(distributed.get_world_size())):
            of_other = functools.partial(run, process_group=other)
            said = message(lambda of_other=of_other: of_other(None, None), TypeError)
            assert said == (
                "batch_norm: process_group must be a torch.distributed.ProcessGroup or None, got "
                f"{type(other).__name__}"
            ), said
        said = message(lambda: torch.func.vmap(lambda v: run(None, None))(torch.ones(2)))
        assert said.startswith("batch_norm: statistics of several processes must be asked"), said
    assert not counted
