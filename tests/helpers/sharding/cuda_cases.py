"""Several processes on GPUs beside one that has all rows and whole tensors: CASES for processes.py,
for any number of processes, with NCCL or gloo.

Each result is judged by the rule of all tests: an error of at most twice that of PyTorch in the
same dtype on the same GPU, and one ulp; the truth is PyTorch in float64.
"""

import copy
import functools
import itertools

import torch
from plain import PlainLinearBatchNorm1dScaleSoftmax, PlainLinearScaleBatchNorm1d
from torch import distributed
from torch.distributed import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import cutlass_fused
from cutlass_fused import functional, nn, sharding
from cutlass_fused.sharding import SyncBatchNorm

CASES = {}
# Where there is no GPU these cases can be read through, and run, on the CPU.
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# No tile divides N and K.
N, K = 264, 200
DTYPES = (torch.float32, torch.bfloat16)
KINDS = {
    "scale": (nn.LinearScaleBatchNorm1d, PlainLinearScaleBatchNorm1d, (K, N, (N,))),
    "softmax": (nn.LinearBatchNorm1dScaleSoftmax, PlainLinearBatchNorm1dScaleSoftmax, (K, N)),
    "alone": (nn.BatchNorm1d, torch.nn.BatchNorm1d, (K,)),
}
# Rows of each process: as many, not as many, none or one in some.
ROWS = {"even": (96, 96, 96, 96), "uneven": (70, 131, 1, 90), "some empty": (0, 257, 64, 0)}


def case(test):
    CASES[test.__name__] = test
    return test


def make_leaf(tensor, device="cpu", dtype=None):
    return tensor.detach().to(device, dtype, copy=True).requires_grad_()


def world():
    return distributed.get_world_size()


def own_rows(whole, rows):
    return whole.split(list(rows[: world()]))[distributed.get_rank()].clone()


def judge(name, found, eager, truth, of=None, terms=0.0):
    """`of`: what of eager and truth the found is, which are whole; `terms`: the largest sum of the
    absolute values of rounded terms that nearly cancel."""
    found, eager, truth = found.detach(), eager.detach(), truth.detach()
    allowed = 2 * (eager.double().cpu() - truth).abs().max()
    allowed = allowed + torch.finfo(found.dtype).eps * (truth.abs().max() + 2 * terms)
    truth = truth if of is None else of(truth)
    assert found.shape == truth.shape, (name, found.shape, truth.shape)
    error = (found.double().cpu() - truth).abs()
    assert error.numel() == 0 or error.max() <= allowed, (name, error.max(), allowed)


def add_up(tensor):
    """Over the processes, in fp32."""
    total = tensor.detach().float()
    distributed.all_reduce(total)
    return total


def equal_everywhere(tensor):
    others = [torch.empty_like(tensor) for _ in range(world())]
    distributed.all_gather(others, tensor.detach().contiguous())
    return all(torch.equal(other, tensor) for other in others)


# ---- batch norms that share statistics ----


def sum_terms_of_scale(model):
    """Behind the backward pass: the largest sum of |grad_v * v / scale|, of a column where each has
    a scale. Since y hardly depends on a scale in front of a batch norm, the sum itself nearly
    cancels; that of a softmax is one number, of all elements."""
    found = []

    def keep(module, inputs):
        (v,) = inputs
        if v.requires_grad:
            v.register_hook(lambda grad: found.append(add(grad * v / model.scale)))

    def add(terms):
        return terms.abs().sum(0).max() if model.scale.numel() > 1 else terms.abs().sum()

    behind = {PlainLinearScaleBatchNorm1d: "bn", PlainLinearBatchNorm1dScaleSoftmax: "softmax"}
    if type(model) in behind:
        getattr(model, behind[type(model)]).register_forward_pre_hook(keep)
    return found


def check_batch_norm(kind, dtype, rows):
    ours, plain, arguments = KINDS[kind]
    eager = plain(*arguments).to(dtype)
    truth = copy.deepcopy(eager).double()
    eager = eager.to(DEVICE)
    ours = ours(*arguments)
    ours.load_state_dict(eager.state_dict())
    ours = SyncBatchNorm.convert_sync_batchnorm(ours).to(DEVICE, dtype)
    whole = (torch.randn(sum(rows[: world()]), K) + 3).to(dtype)
    x = make_leaf(own_rows(whole, rows), DEVICE)
    inputs = [make_leaf(whole, DEVICE), make_leaf(whole, dtype=torch.float64)]
    terms = sum_terms_of_scale(truth)
    y, expected, exact = ours(x), eager(inputs[0]), truth(inputs[1])
    grad = torch.randn(exact.shape).to(dtype)
    y.backward(own_rows(grad, rows).to(DEVICE))
    expected.backward(grad.to(DEVICE)), exact.backward(grad.double())
    of = functools.partial(own_rows, rows=rows)
    judge("y", y, expected, exact, of)
    judge("x.grad", x.grad, inputs[0].grad, inputs[1].grad, of)
    triples = zip(ours.named_parameters(), eager.parameters(), truth.parameters(), strict=True)
    for (name, a), b, c in triples:
        if name != "gemm.bias":  # in front of a batch norm its gradient is 0, and what is lost
            of_scale = terms[0] if name == "scale" else 0.0
            judge(name, add_up(a.grad).to(dtype), b.grad, c.grad, terms=of_scale)
    for (name, a), b, c in zip(ours.named_buffers(), eager.buffers(), truth.buffers(), strict=True):
        assert equal_everywhere(a), name
        if a.is_floating_point():
            judge(name, a, b, c)
    ours.eval(), eager.eval(), truth.eval()
    with torch.no_grad():
        judge("eval", ours(x), eager(inputs[0]), truth(inputs[1]), of)


for kind, dtype, rows in itertools.product(KINDS, DTYPES, ROWS):
    if rows != "some empty":
        CASES[f"{kind}, {dtype}, {rows}"] = functools.partial(
            check_batch_norm, kind, dtype, ROWS[rows]
        )


@case
def empty_batches():
    rows = ROWS["some empty"]
    for kind in KINDS:
        # One process alone has rows of its own, and a batch of none is not what this is about.
        check_batch_norm(kind, torch.float32, rows if world() > 1 else (257,))


@case
def statistics_by_way_of_the_group():
    """Also where the group has one process, whose statistics are otherwise found by the fused
    kernels: the passes, the merge, and what is sent."""
    for dtype in DTYPES:
        whole = (torch.randn(150 * world(), N) * 2 + 100).to(dtype)
        rows = (150,) * 4
        vectors = [torch.randn(N).to(dtype) for _ in range(2)]
        leaves = [own_rows(whole, rows), *vectors]
        ours = [make_leaf(t, DEVICE) for t in leaves]
        eager = [make_leaf(t, DEVICE) for t in (whole, *vectors)]
        truth = [make_leaf(t, dtype=torch.float64) for t in (whole, *vectors)]
        running = [torch.zeros(N), torch.ones(N)]
        moved = [t.to(DEVICE, copy=True) for t in running]
        tracked = (*moved, torch.zeros((), dtype=torch.int64, device=DEVICE))
        group = distributed.group.WORLD
        y = sharding.normalize_over("batch_norm", (group,), ours[0], tracked, *ours[1:], 0.1, 1e-5)
        results = []
        for x, gamma, beta in (eager, truth):
            kept = [t.to(x.device, x.dtype, copy=True) for t in running]
            results.append((F.batch_norm(x, *kept, gamma, beta, True, 0.1, 1e-5), kept))
        grad = torch.randn(whole.shape).to(dtype)
        y.backward(own_rows(grad, rows).to(DEVICE))
        results[0][0].backward(grad.to(DEVICE)), results[1][0].backward(grad.double())
        of = functools.partial(own_rows, rows=rows)
        judge("y", y, results[0][0], results[1][0], of)
        judge("x.grad", ours[0].grad, eager[0].grad, truth[0].grad, of)
        for name, a, b, c in zip(("gamma", "beta"), ours[1:], eager[1:], truth[1:], strict=True):
            judge(name, add_up(a.grad).to(dtype), b.grad, c.grad)
        for name, a, b, c in zip(("mean", "var"), moved, results[0][1], results[1][1], strict=True):
            # PyTorch's kernel keeps them in the dtype of x here, ours in float32.
            judge(name, a.to(b.dtype), b, c)


# ---- DTensors ----

VECTORS = ("bias", "scale", "gamma", "beta")
CUTS = {
    "columns": {"weight": Shard(0)} | dict.fromkeys(VECTORS, Shard(0)),
    "rows": {"x": Shard(0)},
    "inner": {"x": Shard(1), "weight": Shard(1)},
}


@functools.cache
def line():
    return init_device_mesh(DEVICE, (world(),))


def run_leaky_relu(t):
    return functional.linear_scale_leaky_relu(*t.values(), 0.1)


def run_gelu(t):
    x, weight, bias = t.values()
    return functional.linear_epilogue(x, weight, "gelu", bias=bias)


def run_norm(function, t):
    t = dict(t)
    gamma, beta = t.pop("gamma"), t.pop("beta")
    return function(*t.values(), None, None, gamma, beta, True)


def plain_norm(t):
    z = F.linear(t["x"], t["weight"], t["bias"]) * t["scale"] if "weight" in t else t["x"]
    return F.batch_norm(z, None, None, t["gamma"], t["beta"], True)


def plain_norm_softmax(t):
    z = F.linear(t["x"], t["weight"], t["bias"])
    b = F.batch_norm(z, None, None, t["gamma"], t["beta"], True)
    return torch.softmax(b * t["scale"], 1)


PRODUCT = ("x", "weight", "bias", "scale")
FUNCTIONS = {
    "leaky_relu": (
        run_leaky_relu,
        lambda t: F.leaky_relu(F.linear(t["x"], t["weight"], t["bias"]) * t["scale"], 0.1),
        PRODUCT,
    ),
    "epilogue": (
        run_gelu,
        lambda t: F.gelu(F.linear(t["x"], t["weight"], t["bias"])),
        PRODUCT[:3],
    ),
    "batch_norm": (
        functools.partial(run_norm, functional.linear_scale_batch_norm),
        plain_norm,
        (*PRODUCT, "gamma", "beta"),
    ),
    "norm_softmax": (
        functools.partial(run_norm, functional.linear_batch_norm_scale_softmax),
        plain_norm_softmax,
        (*PRODUCT, "gamma", "beta"),
    ),
    "batch_norm alone": (
        functools.partial(run_norm, functional.batch_norm),
        plain_norm,
        ("x", "gamma", "beta"),
    ),
    "softmax": (
        lambda t: functional.softmax(t["x"]),
        lambda t: torch.softmax(t["x"], 1),
        ("x",),
    ),
}


def make_leaves(names, dtype):
    columns = K if "weight" in names else N
    sizes = {"x": (150, columns), "weight": (N, K)} | dict.fromkeys(VECTORS, (N,))
    leaves = {name: torch.randn(sizes[name]) for name in names}
    if "weight" in leaves:
        leaves["weight"] /= K**0.5
    return {name: leaf.to(dtype) for name, leaf in leaves.items()}


def own_part(tensor, placements):
    """What of a whole tensor this process has."""
    for placement in placements:
        if isinstance(placement, Shard):
            parts = tensor.chunk(world(), placement.dim)
            rank = distributed.get_rank()
            empty = tensor.narrow(placement.dim, 0, 0)
            tensor = parts[rank] if rank < len(parts) else empty
    return tensor


def check_sharded(name, dtype, cuts):
    run, plain, names = FUNCTIONS[name]
    placed = (
        CUTS[cuts]
        if "weight" in names
        else CUTS[cuts] | ({"x": Shard(1)} if cuts == "columns" else {})
    )
    leaves = make_leaves(names, dtype)
    eager = {key: make_leaf(leaf, DEVICE) for key, leaf in leaves.items()}
    truth = {key: make_leaf(leaf, dtype=torch.float64) for key, leaf in leaves.items()}
    ours = {
        key: distribute_tensor(
            leaf.to(DEVICE), line(), [placed.get(key, Replicate())], src_data_rank=None
        ).requires_grad_()
        for key, leaf in leaves.items()
    }
    y, expected, exact = run(ours), plain(eager), plain(truth)
    grad = torch.randn(exact.shape).to(dtype)
    y.backward(distribute_tensor(grad.to(DEVICE), line(), y.placements, src_data_rank=None))
    expected.backward(grad.to(DEVICE)), exact.backward(grad.double())
    judge("y", y.to_local(), expected, exact, lambda t: own_part(t, y.placements))
    for key, leaf in ours.items():
        if key == "bias" and "norm" in name:
            continue  # its gradient is 0, and what is lost
        found = leaf.grad.to_local()
        if any(each.is_partial() for each in leaf.grad.placements):
            found = add_up(found).to(dtype)
        placements = leaf.grad.placements
        of = functools.partial(own_part, placements=placements)
        exact = truth[key].grad
        # Of a vector that is a sum over the rows, which is about four times the largest.
        terms = 1.5 * exact.abs().max() if exact.dim() == 1 else 0.0
        judge(f"{key}.grad", found, eager[key].grad, exact, of, terms)


for name, dtype, cuts in itertools.product(FUNCTIONS, DTYPES, CUTS):
    if cuts != "inner" or "weight" in FUNCTIONS[name][2]:
        CASES[f"{name}, {dtype}, {cuts}"] = functools.partial(check_sharded, name, dtype, cuts)


# ---- models ----


def build_model():
    """What fuse finds, and what it leaves: a batch norm that shares statistics."""
    return torch.nn.Sequential(
        torch.nn.Linear(K, N),
        torch.nn.BatchNorm1d(N),
        torch.nn.Linear(N, K),
        torch.nn.ReLU(),
        torch.nn.Linear(K, 40),
        torch.nn.Tanh(),
    )


def train(model, batches, parts, device):
    """Steps of `model`, of the rows that `parts` gives."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, grad in batches:
        dtype = next(model.parameters()).dtype
        y = model(parts(x).to(device, dtype))
        y.backward(parts(grad).to(device, dtype))
        optimizer.step(), optimizer.zero_grad()


def data_parallel(way):
    rows = ROWS["uneven"]
    plain = build_model()
    truth, eager = copy.deepcopy(plain).double(), copy.deepcopy(plain).to(DEVICE)
    ours = SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain)).to(DEVICE)
    cutlass_fused.fuse(ours)
    count = sum(rows[: world()])
    batches = [(torch.randn(count, K), torch.randn(count, 40) / count) for _ in range(2)]
    if way == "DDP":
        model = DistributedDataParallel(ours)
    else:
        model = fully_shard(ours, mesh=line())
    # The mean over the processes is that of what each gives.
    ours_batches = [(x, grad * world()) for x, grad in batches]
    train(model, ours_batches, functools.partial(own_rows, rows=rows), DEVICE)
    train(eager, batches, lambda t: t, DEVICE)
    train(truth, batches, lambda t: t, "cpu")
    triples = zip(
        ours.state_dict().items(),
        eager.state_dict().values(),
        truth.state_dict().values(),
        strict=True,
    )
    for (name, a), b, c in triples:
        a = a.full_tensor() if isinstance(a, DTensor) else a
        if a.is_floating_point():
            judge(name, a, b, c)


CASES["DDP"] = functools.partial(data_parallel, "DDP")


@case
def FSDP():
    # What it gathers and scatters gloo has for no CUDA tensors.
    if DEVICE == "cpu" or distributed.get_backend() == "nccl":
        data_parallel("FSDP")
