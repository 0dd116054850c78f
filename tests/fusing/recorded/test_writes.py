"""What is written while a forward runs, to tensors and to attributes: it is seen, or the forward is
left alone."""

import copy

import pytest
import torch
from linear_tails import K, N
from torch import nn
from torch.nn import functional as F

import cutlass_fused


class Writes(nn.Module):
    """A model with a forward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(K, N)
        self.matrix = nn.Parameter(torch.randn(K, N))
        self.bias = nn.Parameter(torch.randn(N))


class AddsToItsInput(Writes):
    def forward(self, x):
        before = x
        x += self.fc(x).mean(1, keepdim=True)
        return x * before


class ScalesAView(Writes):
    def forward(self, x):
        y = torch.relu(self.fc(x))
        part = y[:, :2]
        part *= 3.0
        return y


class ByEverySign(Writes):
    def forward(self, x):
        z = self.fc(x)
        other = z
        z += self.bias
        z -= 1.0
        z *= 2.0
        z /= 3.0
        z **= 2
        z %= 0.7
        z //= 0.1
        return z * other


class BetweenProductAndBias(Writes):
    def forward(self, x):
        z = x @ self.matrix
        x.mul_(2.0)
        return torch.relu(z + self.bias)


class DataBetweenProductAndBias(Writes):
    def forward(self, x):
        z = x @ self.matrix
        self.matrix.data.mul_(1.5)
        return z + self.bias


WRITES = [
    *(AddsToItsInput, ScalesAView, ByEverySign, BetweenProductAndBias),
    DataBetweenProductAndBias,
]


@pytest.mark.parametrize("kind", WRITES)
def test_tensors_are_written_as_before(kind):
    model = kind()
    plain = copy.deepcopy(model)
    report = cutlass_fused.fuse(model)
    assert report.sites
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(4, K)
            given = x.clone()
            torch.testing.assert_close(model(x), plain(given))
            torch.testing.assert_close(x, given)


def test_in_place_behind_a_product_stays_in_the_chain():
    class Model(Writes):
        def forward(self, x):
            z = self.fc(x)
            z += self.bias
            z *= 2.0
            return z.relu_()

    (site,) = cutlass_fused.fuse(Model()).sites
    assert site.names == ["Linear", "iadd", "imul", "relu"]


class SetsRequiresGrad(Writes):
    def forward(self, x):
        x = x.detach().clone()
        x.requires_grad = True
        y = torch.tanh(self.fc(x))
        return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


class SetsData(Writes):
    def forward(self, x):
        x = x.clone()
        x.data = x * 2.0
        return torch.relu(self.fc(x))


class AsksIsTensor(Writes):
    def forward(self, x):
        z = self.fc(x)
        return torch.relu(z * 2.0 if torch.is_tensor(z) else z)


class Child(nn.Module):
    """Its call changes what it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.extra = 1.0, None
        self.register_buffer("state", torch.zeros(()))

    def forward(self, x):
        self.gain, self.extra, self.state = self.gain + 1.0, x.mean(), self.state + 1.0
        return x * 2.0


class WithChild(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.child = nn.Linear(K, N), Child()


class ReadsAGain(WithChild):
    def forward(self, x):
        return self.fc(self.child(x)) * self.child.gain


class ReadsAnExtra(WithChild):
    def forward(self, x):
        y = F.relu(self.fc(self.child(x)))
        return y if self.child.extra is None else y + self.child.extra


class ReadsAStateTwice(WithChild):
    def forward(self, x):
        before = self.child.state * 1.0
        y = F.relu(self.fc(self.child(x)))
        return y * (self.child.state - before) * self.child.state


class CallsTwice(nn.Linear):
    def __call__(self, x):
        return super().__call__(x) * 2.0 + 1.0


class WithACall(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.last = nn.Linear(K, N), CallsTwice(N, N)

    def forward(self, x):
        return torch.relu(self.last(self.fc(x)))


LEFT = {
    SetsRequiresGrad: "writes requires_grad of a tensor",
    SetsData: "writes data of a tensor",
    AsksIsTensor: "uses is_tensor",
    ReadsAGain: "reads gain of a module behind a call",
    ReadsAnExtra: "reads extra of a module behind a call",
    ReadsAStateTwice: None,
    WithACall: "has a __call__ of its own",
}


@pytest.mark.parametrize("kind", LEFT)
def test_what_cannot_be_followed_is_left(kind):
    model = kind()
    plain = copy.deepcopy(model)
    report = cutlass_fused.fuse(model)
    if LEFT[kind] is not None:
        assert any(LEFT[kind] in left.why for left in report.left), report
        assert "fc" in [site.where for site in report.sites]
    for shape in [(4, K), (4, K), (K,)]:
        x = torch.randn(shape)
        torch.testing.assert_close(model(x), plain(x))
