"""Forwards in which Python decides by something that a stand-in would answer wrongly: they decide
as before. What fuse can follow stays fused."""

import copy

import pytest
import torch
from linear_tails import K, N
from same_effects import check_fused, check_same, hold
from torch import Tensor, nn
from torch.nn import functional as F

import cutlass_fused


def _list_inputs():
    tagged = torch.randn(4, K)
    tagged.weights = torch.tensor(2.5)
    leaf = torch.randn(4, K, requires_grad=True)
    inputs = [torch.randn(4, K), torch.randn(2, 3, K), torch.randn(4, K).double(), tagged]
    inputs += [leaf, leaf * 2.0, torch.randn(K, 4).t(), torch.randn(K)]
    return inputs


def _choose(ask):
    """A forward with a factor: 2 where ask(self, x) is true."""

    def forward(self, x):
        factor = 2.0 if ask(self, x) else 0.5
        return F.relu(self.fc(x.float())) * factor

    return forward


def _report(say):
    """A forward that gives something else too: say(x)."""

    def forward(self, x):
        return {"y": F.relu(self.fc(x.float())), "said": say(x)}

    return forward


ASKED = {
    # Identity.
    "dtype is": lambda m, x: x.dtype is torch.float32,
    "dtype is not": lambda m, x: x.dtype is not torch.float64,
    "grad_fn is None": lambda m, x: x.grad_fn is None,
    "grad is None": lambda m, x: x.grad is None,
    "requires_grad is False": lambda m, x: x.requires_grad is False,
    "requires_grad is True": lambda m, x: x.requires_grad is True,
    "is_leaf is True": lambda m, x: x.is_leaf is True,
    "layout is": lambda m, x: x.layout is torch.strided,
    "a result is its input": lambda m, x: x.float() is x,
    "contiguous is": lambda m, x: x.contiguous() is x,
    "is_contiguous() is": lambda m, x: x.is_contiguous() is True,
    "class is": lambda m, x: x.__class__ is Tensor,
    "name of the class": lambda m, x: x.__class__.__name__ == "Tensor",
    # Hashes.
    "dim in a set": lambda m, x: x.dim() in {2, 7},
    "dim in a tuple": lambda m, x: x.dim() in (2, 7),
    "dim in a range": lambda m, x: x.dim() in range(3),
    "ndim in a set": lambda m, x: x.ndim in frozenset([3]),
    "get of a dict": lambda m, x: {2: True, 3: False}.get(x.dim(), False),
    "get of a dict, with a default": lambda m, x: {7: False}.get(x.dim(), True),
    "in a dict": lambda m, x: x.dtype in {torch.float32: 1},
    "dtype in a set": lambda m, x: x.dtype in {torch.float64, torch.float16},
    "size not in a set": lambda m, x: x.shape[0] not in {4, K},
    "shape in a set": lambda m, x: x.shape in {(4, K)},
    "a set of sizes": lambda m, x: {x.dim(), x.dim()} == {2},
    # Text.
    "str of a dtype": lambda m, x: str(x.dtype) == "torch.float32",
    "repr of a dtype": lambda m, x: repr(x.dtype).endswith("64"),
    "str of a device": lambda m, x: str(x.device) == "cpu",
    "str starts with": lambda m, x: str(x.device).startswith("cp"),
    "in a str": lambda m, x: "float64" in str(x.dtype),
    "f-string of a device": lambda m, x: f"{x.device}" == "cpu",
    "f-string of a shape": lambda m, x: f"{x.shape[0]}" in ("4", "2"),
    "percent": lambda m, x: "%s" % x.dtype == "torch.float32",  # noqa: UP031
    "format": lambda m, x: "{}".format(x.shape) == f"torch.Size([4, {K}])",  # noqa: UP032
    "join": lambda m, x: "x".join(map(str, x.shape)) == f"4x{K}",
    # getattr.
    "getattr, None": lambda m, x: getattr(x, "weights", None) is None,
    "getattr, a default": lambda m, x: getattr(x, "weights", 7.0) == 7.0,
    "getattr, a word": lambda m, x: getattr(x, "no_such_name", "none") == "none",
    "getattr of what is there": lambda m, x: getattr(x, "ndim", 0) == 2,
    "getattr, False": lambda m, x: getattr(x, "is_nested", True) is False,
    # Others.
    "truth of a number": lambda m, x: x.dim() - 2,
    "numbers compared": lambda m, x: x.shape[0] < x.shape[-1],
    "len": lambda m, x: len(x.shape) == 2,
    "a tensor in a list": lambda m, x: [x].index(x) == 0,
}

SAID = {
    "f-string": lambda x: f"{x.shape[0]} rows of {x.dtype}",
    "f-string, width": lambda x: f"{x.dim():>4}",
    "f-string, repr": lambda x: f"{x.device!r}",
    "percent": lambda x: "%s on %s" % (x.dtype, x.device),  # noqa: UP031
    "percent, a number": lambda x: "%d" % x.dim(),  # noqa: UP031
    "format": lambda x: "{0} {1}".format(x.shape, x.ndim),  # noqa: UP030, UP032
    "str": lambda x: str(x.shape),
    "repr": lambda x: repr(x.dtype),
    "a key": lambda x: {f"of {x.dim()}": 1, x.dim(): 2, x.dtype: 3},
    "hash": lambda x: hash(x.dtype) == hash(x.dtype),
    "hash of a number": lambda x: hash(x.dim()),
    "getattr": lambda x: getattr(x, "weights", None),
    "class": lambda x: x.__class__.__name__,
    "doc": lambda x: x.__doc__,
    "is": lambda x: (x.grad_fn is None, x.dtype is torch.float64, x.requires_grad is True),
    "dir": lambda x: "numpy" in dir(x),
    "sizes": lambda x: [*map(int, x.shape)],
    "shape": lambda x: tuple(x.shape),
    "shape and dtype": lambda x: (x.shape[0], x.dtype, x.device),
}


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("name", ASKED)
def test_asked(name):
    forward = _choose(ASKED[name])
    check_same(lambda: hold(forward), *[(x,) for x in _list_inputs()])


@pytest.mark.parametrize("name", SAID)
def test_said(name):
    forward = _report(SAID[name])
    check_same(lambda: hold(forward), *[(x,) for x in _list_inputs()])


def _match_class(m, x):
    match x:
        case Tensor():
            return F.relu(m.fc(x))
        case _:
            return F.relu(m.other(x))


def _match_shape(m, x):
    match x.shape:
        case (_, _):
            return F.relu(m.fc(x))
        case (batch, _, width):
            return F.relu(m.other(x)) * batch / width
        case _:
            return F.tanh(m.fc(x))


def _match_number(m, x):
    match x.dim():
        case 2 | 7:
            return F.relu(m.fc(x))
        case int():
            return F.relu(m.other(x))


MATCHES = {"class": _match_class, "shape": _match_shape, "number": _match_number}


@pytest.mark.parametrize("name", MATCHES)
def test_match(name):
    def forward(self, x):
        return MATCHES[name](self, x.float())

    calls = [(x,) for x in _list_inputs()]
    check_same(lambda: hold(forward), *calls)
    check_same(lambda: hold(MATCHES[name]), calls[0], calls[1])


PAIRS = {
    "is": lambda m, x, y: F.relu(m.fc(x)) * (2.0 if y is x else 1.0),
    "is not": lambda m, x, y: F.relu(m.fc(x)) + (m.other(y) if y is not x else 0.0),
    "is, behind an op": lambda m, x, y: F.relu(m.fc(x)) if m.same(x) is y else m.fc(x),
    "in a tuple": lambda m, x, y: F.relu(m.fc(x)) if any(e is y for e in (x,)) else m.fc(x),
    "dtypes are the same": lambda m, x, y: F.relu(m.fc(x)) if x.dtype is y.dtype else m.fc(x),
    "devices are equal": lambda m, x, y: F.relu(m.fc(x)) if x.device == y.device else m.fc(x),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_tensors(name):
    x, y = torch.randn(4, K), torch.randn(4, K)
    make_same = {"same": nn.Identity}
    calls = [(x, y), (x, x)] + ([] if "dtypes" not in name else [(x, y.double())])
    check_same(lambda: hold(PAIRS[name], **make_same), *calls)


def _tie(is_tied):
    def forward(self, x):
        is_one = self.fc.weight is self.other.weight
        return F.relu(self.fc(x)) * (2.0 if is_one else 0.5)

    model = hold(forward)
    if is_tied:
        model.other.weight = model.fc.weight
    return model


@pytest.mark.parametrize("is_tied", [False, True])
def test_tied_weights(is_tied):
    x = torch.randn(4, K)
    check_same(lambda: _tie(is_tied), (x,))
    model, plain = _tie(is_tied), _tie(is_tied)
    plain.load_state_dict(model.state_dict())
    cutlass_fused.fuse(model)
    model(x)
    for each in (model, plain):  # tied or not, the other way round
        each.other.weight = nn.Parameter(each.fc.weight.detach()) if is_tied else each.fc.weight
    torch.testing.assert_close(model(x), plain(x))
    torch.testing.assert_close(copy.deepcopy(model)(x), copy.deepcopy(plain)(x))


def _of_mask(self, x, mask=None):
    y = F.relu(self.fc(x))
    return y if mask is None else y * mask


def _of_mask_inverted(self, x, mask=None):
    y = F.relu(self.fc(x))
    if mask is not None:
        y = y.masked_fill(mask > 0, 0.0)
    return y


def _of_bias(self, x):
    z = x @ self.fc.weight.T
    if self.fc.bias is not None:
        z = z + self.fc.bias
    return torch.tanh(z)


def _of_context(self, x, context=None):
    if context is None:
        context = x
    return torch.sigmoid(self.fc(x)) * self.other(context)


def _of_parts(self, x):
    y = F.relu(self.fc(x))
    if self.drop is not None:
        y = self.drop(y)
    return y if self.scale is None else y * self.scale


def _of_shapes(self, x):
    b, d = x.shape
    return torch.tanh(self.fc(x)).view(b, 3, N // 3) * d


def _of_sizes(self, x):
    rows = x.shape[0]
    return torch.tanh(self.fc(x)).reshape(rows, -1)


FUSED = {
    "a default": (_of_mask, [N]),
    "a default, the other way round": (_of_mask_inverted, [N]),
    "a bias": (_of_bias, []),
    "a default replaced": (_of_context, [K]),
    "attributes": (_of_parts, []),
    "a shape unpacked": (_of_shapes, []),
    "a size": (_of_sizes, []),
}


@pytest.mark.parametrize("name", FUSED)
def test_what_stays_fused(name):
    forward, widths = FUSED[name]
    parts = {"drop": lambda: None, "scale": lambda: nn.Parameter(torch.rand(N))}
    x = torch.randn(4, K)
    calls = [(x,), {"x": x}, (torch.randn(1, K),), (torch.randn(2, 3, K),)]
    for width in widths:
        given = torch.randn(4, width)
        calls += [(x, given), (x, None), {"x": x, "context" if width == K else "mask": given}]
    report = check_same(lambda: hold(forward, **parts), *calls)
    check_fused(report)
