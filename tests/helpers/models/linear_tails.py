"""Small models with a linear layer and something behind it, of every kind that `fuse` may meet."""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

K, N = 8, 12


class Behind(nn.Module):
    """tail(self, z, x), with parts that the tail reads."""

    def __init__(self, tail, bias=True, n=None, **parts) -> None:
        super().__init__()
        self.fc, self.tail = nn.Linear(K, n or N, bias), tail
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.tail(self, self.fc(x), x)


class OfMatrices(nn.Module):
    """x @ weight.T + bias in one of PyTorch's ways, and a GELU."""

    def __init__(self, multiply, is_transposed=False) -> None:
        super().__init__()
        shape = (K, N) if is_transposed else (N, K)
        self.weight, self.bias = nn.Parameter(torch.randn(shape)), nn.Parameter(torch.randn(N))
        self.multiply = multiply

    def forward(self, x):
        return F.gelu(self.multiply(x, self.weight, self.bias))


class Residual(nn.Module):
    """A block of an MLP with its residual."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.norm = nn.Linear(K, N), nn.Linear(N, K), nn.LayerNorm(K)

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class Gated(nn.Module):
    """A gated linear unit: two products meet."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(K, N), nn.Linear(K, N), nn.Linear(N, K)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layers(nn.Module):
    """A list of layers, as of an interatomic potential."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(K, N), nn.Linear(N, N), nn.Linear(N, 1)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.silu(layer(x))
        return self.layers[-1](x).squeeze(-1)


class ManyScales(nn.Module):
    """Its gradient has more results than a program."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(K, N)
        self.scales = nn.ParameterList(nn.Parameter(torch.rand(N) + 0.5) for _ in range(9))

    def forward(self, x):
        z = self.linear(x)
        a, b, c, d, e, f, g, h, i = self.scales
        z = torch.tanh(torch.tanh(torch.tanh(z * a) * b) * c)
        z = torch.tanh(torch.tanh(torch.tanh(z * d) * e) * f)
        return F.log_softmax(torch.tanh(torch.tanh(z * g) * h) * i, dim=1)


class Case(NamedTuple):
    """make: the model.
    calls: what its sites call, in their order; in training where that is another (`trained`).
    is_whole: whether nothing but the sites is left of its graph.
    is_smooth: whether it can be differentiated twice, and everywhere near.
    """

    make: object
    calls: tuple[str, ...]
    trained: tuple[str, ...] | None = None
    is_whole: bool = True
    is_smooth: bool = True


_PROGRAM = "linear_epilogue, a program"


def _behind(
    tail,
    calls=(_PROGRAM,),
    trained=None,
    is_whole=True,
    is_smooth=True,
    **parts,
):
    def make():
        made = {name: part() for name, part in parts.items()}
        return Behind(tail, **made)

    return Case(make, calls, trained, is_whole, is_smooth)


def _row():
    return nn.Parameter(torch.randn(N))


def _scalar():
    return nn.Parameter(torch.rand(1) + 0.5)


def _norm():
    norm = nn.BatchNorm1d(N)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    return norm


def _layer_norm():
    return nn.LayerNorm(N)


_SCALED = "linear_scale_leaky_relu"
_NORMED = "linear_scale_batch_norm"
_SOFTMAX = "linear_batch_norm_scale_softmax"

CASES = {
    "nothing": _behind(lambda m, z, x: z, ("linear",)),
    "relu": _behind(lambda m, z, x: F.relu(z), ("linear_epilogue, relu",), is_smooth=False),
    "relu in place": _behind(
        lambda m, z, x: m.act(z),
        ("linear_epilogue, relu",),
        is_smooth=False,
        act=lambda: nn.ReLU(inplace=True),
    ),
    "gelu of tanh": _behind(
        lambda m, z, x: m.act(z), ("linear_epilogue, gelu_tanh",), act=lambda: nn.GELU("tanh")
    ),
    "prelu": _behind(lambda m, z, x: m.act(z), act=nn.PReLU, is_smooth=False),
    "selu": _behind(lambda m, z, x: m.act(z), act=nn.SELU, is_smooth=False),
    "no bias": _behind(
        lambda m, z, x: torch.tanh(z), ("linear_epilogue, tanh",), bias=lambda: False
    ),
    "scale, leaky": _behind(
        lambda m, z, x: F.leaky_relu(z * 2.0, 0.1), (_SCALED,), is_smooth=False
    ),
    "scales of columns, leaky": _behind(
        lambda m, z, x: m.act(m.scale * z),
        (_SCALED,),
        is_smooth=False,
        scale=_row,
        act=lambda: nn.LeakyReLU(0.2),
    ),
    "batch norm": _behind(lambda m, z, x: m.bn(z), (_NORMED,), bn=_norm),
    "scale, batch norm": _behind(lambda m, z, x: m.bn(z * m.s), (_NORMED,), bn=_norm, s=_row),
    "batch norm, scale, softmax": _behind(
        lambda m, z, x: torch.softmax(m.s * m.bn(z), dim=1), (_SOFTMAX,), bn=_norm, s=_scalar
    ),
    "batch norm, softmax": _behind(lambda m, z, x: m.bn(z).softmax(1), (_SOFTMAX,), bn=_norm),
    "batch norm, silu": _behind(
        lambda m, z, x: F.silu(m.bn(z)), (_PROGRAM,), (_NORMED,), False, bn=_norm
    ),
    "relu, batch norm": _behind(
        lambda m, z, x: m.bn(torch.sigmoid(z)),
        (_PROGRAM,),
        ("linear_epilogue, sigmoid",),
        False,
        bn=_norm,
    ),
    "batch norm without parameters": _behind(
        lambda m, z, x: m.bn(z), (_NORMED,), bn=lambda: nn.BatchNorm1d(N, affine=False)
    ),
    "batch norm without statistics": _behind(
        lambda m, z, x: m.bn(z), (_NORMED,), bn=lambda: nn.BatchNorm1d(N, track_running_stats=False)
    ),
    "sigmoid, scale, residual": _behind(lambda m, z, x: torch.sigmoid(z) * 0.5 + z),
    "gelu, softmax": _behind(lambda m, z, x: F.softmax(F.gelu(z), dim=1)),
    "log-sum-exp, leaky, gelu": _behind(
        lambda m, z, x: F.gelu(F.leaky_relu(torch.logsumexp(z, dim=1, keepdim=True), 0.3)),
        is_smooth=False,
    ),
    "least of a row": _behind(lambda m, z, x: z.amin(dim=1), is_smooth=False),
    "group norm, hardtanh": _behind(
        lambda m, z, x: F.hardtanh(m.norm(z), -0.5, 0.5),
        is_smooth=False,
        norm=lambda: nn.GroupNorm(3, N),
    ),
    "swish, divide, clamp, tanh, clamp": _behind(
        lambda m, z, x: torch.tanh((z * torch.sigmoid(z) / 2.0).clamp(-1.0, 1.0)).clamp(-0.9, 0.9),
        is_smooth=False,
    ),
    "largest, less the mean, gelu": _behind(
        lambda m, z, x: _subtract_mean(torch.max(z, dim=1, keepdim=True).values),
        is_smooth=False,
    ),
    "dropout, softmax": _behind(
        lambda m, z, x: F.softmax(m.drop(z), dim=1),
        trained=("linear",),
        is_whole=False,
        drop=lambda: nn.Dropout(0.5),
    ),
    "subtract, multiply, relu": _behind(
        lambda m, z, x: torch.relu((z - 0.25) * 1.5), is_smooth=False
    ),
    "mish of mish": _behind(lambda m, z, x: F.mish(F.mish(z))),
    "group norm, leaky, twice": _behind(
        lambda m, z, x: _double(F.leaky_relu(m.norm(z), 0.1)),
        is_smooth=False,
        norm=lambda: nn.GroupNorm(4, N),
    ),
    "windows": _behind(
        lambda m, z, x: F.gelu(m.pool(z.unsqueeze(1)).squeeze(1)) * 2.0,
        pool=lambda: nn.AvgPool1d(3),
    ),
    "sum of sigmoids": _behind(lambda m, z, x: torch.sigmoid(z).sum(dim=1, keepdim=True)),
    "layer norm": _behind(lambda m, z, x: m.norm(z), norm=_layer_norm),
    "rms norm, silu": _behind(lambda m, z, x: F.silu(m.norm(z)), norm=lambda: nn.RMSNorm(N)),
    "log softmax": _behind(lambda m, z, x: F.log_softmax(z, dim=-1)),
    "of columns, rows": _behind(
        lambda m, z, x: F.softplus(z + m.a) * x[:, :1] - m.b, a=_row, b=_row
    ),
    "in place": _behind(lambda m, z, x: z.mul_(0.5).add_(m.a).sigmoid_(), a=_row),
    "read twice": _behind(lambda m, z, x: (z, torch.tanh(z)), ("linear",), is_whole=False),
    "F.linear": Case(lambda: OfMatrices(F.linear), ("linear_epilogue, gelu",)),
    "addmm": Case(
        lambda: OfMatrices(lambda x, w, b: torch.addmm(b, x, w.t())), ("linear_epilogue, gelu",)
    ),
    "addmm of (K, N)": Case(
        lambda: OfMatrices(lambda x, w, b: torch.addmm(b, x, w), True), ("linear_epilogue, gelu",)
    ),
    "matmul and add": Case(
        lambda: OfMatrices(lambda x, w, b: x @ w.T + b), ("linear_epilogue, gelu",)
    ),
    "matmul of (K, N)": Case(
        lambda: OfMatrices(lambda x, w, b: b + torch.matmul(x, w), True), ("linear_epilogue, gelu",)
    ),
    "residual": Case(Residual, ("linear_epilogue, gelu", _PROGRAM), None, False),
    "gated": Case(Gated, (_PROGRAM, "linear", "linear"), None, False),
    "layers": Case(
        Layers, ("linear_epilogue, silu", "linear_epilogue, silu", "linear"), None, False
    ),
    "sequential": Case(
        lambda: nn.Sequential(
            nn.Linear(K, N), nn.Sequential(nn.SiLU(), nn.Linear(N, 3)), nn.Tanh()
        ),
        ("linear_epilogue, silu", "linear_epilogue, tanh"),
    ),
}


def _subtract_mean(most):
    return F.gelu(most - most.mean(dim=1, keepdim=True))


def _double(y):
    return y + y
