"""Models of one Linear, and what may stand behind it."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

M, N, K = 24, 32, 40


class Tail(nn.Module):
    """function(linear(x), *parameters), of parameters of these shapes; sizes: K and N."""

    def __init__(self, function, *shapes, bias=True, sizes=(K, N)):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(*sizes, bias)
        self.function = copy.deepcopy(function)
        self.count = len(shapes)
        for index, shape in enumerate(shapes):
            setattr(self, f"value{index}", nn.Parameter(torch.rand(shape) + 0.5))

    def forward(self, x):
        values = [getattr(self, f"value{index}") for index in range(self.count)]
        return self.function(self.linear(x), *values)


def norm():
    module = nn.BatchNorm1d(N)
    with torch.no_grad():
        for tensor in (module.running_mean, module.weight, module.bias):
            tensor.normal_()
        module.running_var.uniform_(0.5, 2)
    return module.eval()


# Name -> function of z and parameters, their shapes, and the words of the program behind `acc` and
# a bias, where all of it is one program. Activations must be words of their own again.
ROW = (N,)
WHOLE = {
    "relu": (F.relu, [], ["relu"]),
    "relu6": (F.relu6, [], ["clamp"]),
    "leaky_relu": (F.leaky_relu, [], ["leaky_relu"]),
    "prelu": (F.prelu, [(1,)], ["prelu"]),
    "prelu of columns": (F.prelu, [ROW], ["prelu"]),
    "gelu": (F.gelu, [], ["gelu"]),
    "gelu, tanh": (lambda z: F.gelu(z, approximate="tanh"), [], ["gelu_tanh"]),
    "silu": (F.silu, [], ["silu"]),
    "swish": (lambda z: z * z.sigmoid(), [], ["silu"]),
    "sigmoid": (torch.sigmoid, [], ["sigmoid"]),
    "tanh": (torch.tanh, [], ["tanh"]),
    "softplus": (F.softplus, [], ["softplus"]),
    "softplus, beta": (lambda z: F.softplus(z, 2.0, 3.0), [], ["softplus"]),
    "mish": (F.mish, [], ["mish"]),
    "elu": (F.elu, [], ["elu"]),
    "elu, alpha": (lambda z: F.elu(z, 0.7), [], ["elu"]),
    "selu": (F.selu, [], ["elu"]),
    "celu": (lambda z: F.celu(z, 0.7), [], ["elu"]),
    "hardswish": (F.hardswish, [], ["hardswish"]),
    "hardsigmoid": (F.hardsigmoid, [], ["hardsigmoid"]),
    "hardtanh": (lambda z: F.hardtanh(z, -0.5, 0.25), [], ["clamp"]),
    "log_sigmoid": (F.logsigmoid, [], ["log_sigmoid"]),
    "threshold": (lambda z: F.threshold(z, 0.125, -2.0), [], ["threshold"]),
    "clamp": (lambda z: z.clamp(max=0.5), [], ["clamp"]),
    "square": (torch.square, [], ["mul"]),
    "abs, sqrt": (lambda z: z.abs().sqrt(), [], ["abs", "sqrt"]),
    "sin": (torch.sin, [], ["sin"]),
    "softsign": (F.softsign, [], None),
    "tanhshrink": (F.tanhshrink, [], ["tanh", "sub"]),
    "scale": (lambda z: z * 2.0, [], ["mul"]),
    "scale, leaky_relu": (lambda z: F.leaky_relu(z * 2.0, 0.1), [], ["mul", "leaky_relu"]),
    "columns": (lambda z, a, b: z * a + b, [ROW, ROW], ["mul", "add"]),
    "one value": (lambda z, a: z / a, [()], ["div"]),
    "a number of a vector": (lambda z, a: (z - a).relu(), [(1,)], ["sub", "relu"]),
    "a row of two dimensions": (lambda z, a: z * a, [(1, N)], ["mul"]),
    "of one value": (lambda z, a: z * a.exp(), [()], ["exp", "mul"]),
    "of columns": (lambda z, a: z * torch.sigmoid(a), [ROW], ["sigmoid", "mul"]),
    "residual": (lambda z, r: (z + r).relu(), [(M, N)], ["add", "relu"]),
    "rows": (lambda z, r: z * r, [(M, 1)], ["mul"]),
    "gate": (lambda z, g: z * torch.sigmoid(g), [(M, N)], ["sigmoid", "mul"]),
    "gate of itself": (lambda z: z * torch.tanh(z.exp()), [], ["exp", "tanh", "mul"]),
    "where": (lambda z, r: torch.where(z > r, z, -r), [ROW], None),
    "lerp": (lambda z, r: torch.lerp(z, r, 0.25), [ROW], None),
    "constants": (lambda z: z + torch.full((N,), 2.0), [], ["add"]),
    "batch norm": (norm(), [], None),
    "softmax": (lambda z: z.softmax(-1), [], None),
    "log_softmax": (lambda z: z.log_softmax(1), [], None),
    "layer norm": (nn.LayerNorm(N), [], None),
    "rms norm": (nn.RMSNorm(N), [], None),
    "normalize": (lambda z: F.normalize(z, dim=-1), [], None),
    "sum": (lambda z: z.sum(1), [], None),
    "mean, kept": (lambda z: z.mean(1, keepdim=True), [], None),
    "maximum": (lambda z: z.max(1).values, [], None),
    "minimum": (lambda z: z.amin(-1, keepdim=True).relu(), [], None),
    "log-sum-exp": (lambda z: z.logsumexp(1), [], None),
    "variance": (lambda z: z.var(1), [], None),
}

# Where a chain ends: what is left of the graph, in order, and the words in front of it.
ENDS = {
    "cumsum": (lambda z: z.relu().cumsum(1), [], ["cumsum"], ["relu"]),
    "sum of rows": (lambda z: z.relu().sum(0), [], ["sum"], ["relu"]),
    "rows of others": (lambda z, r: F.gelu(z) + r, [(M, 1, 1)], ["add"], ["gelu"]),
    "sort": (lambda z: F.silu(z).sort(1).values, [], ["sort"], ["silu"]),
    "transposed": (lambda z: z.tanh().t() * 2, [], ["mul"], ["tanh"]),
    "half of the columns": (lambda z: z.tanh()[:, :7].exp(), [], ["slice", "exp"], ["tanh"]),
    "whole numbers": (lambda z: z.exp().to(torch.int32) + 1, [], None, ["exp"]),
    "of rows and itself": (lambda z: z.exp() - z.exp().sum(0), [], ["sum", "sub"], ["exp"]),
}
