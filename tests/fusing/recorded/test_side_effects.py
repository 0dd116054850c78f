"""What a forward leaves in files and in generators of random numbers; the time it asks for; and
what hooks write in the model."""

import datetime
import logging
import os
import random
import sys
import time
from datetime import datetime as clock
from random import gauss
from time import time_ns

import numpy as np
import pytest
import torch
from linear_tails import K, N
from numpy import random as draws
from numpy.random import beta
from same_effects import check_equal, check_same, hold, observe
from torch import nn
from torch.nn import functional as F

import cutlass_fused

_log = logging.getLogger(__name__)


GENERATORS = {
    "beta": lambda self, x: F.relu(self.fc(x)) * float(beta(0.5, 1.0)),
    "numpy": lambda self, x: F.relu(self.fc(x)) * float(np.random.rand()),
    "by another name": lambda self, x: F.relu(self.fc(x)) * float(draws.exponential()),
    "several": lambda self, x: F.relu(self.fc(x)) * draws.random_sample(3).tolist()[0],
    "numpy, drawn only": lambda self, x: (draws.poisson(), F.relu(self.fc(x)))[1],
    "numpy, seeded": lambda self, x: (draws.seed(5), F.relu(self.fc(x)))[1],
    "gauss": lambda self, x: F.relu(self.fc(x)) * gauss(0.0, 1.0),
    "betavariate": lambda self, x: F.relu(self.fc(x)) * random.betavariate(1.0, 2.0),
    "sample": lambda self, x: F.relu(self.fc(x)) * random.sample(range(9), 2)[0],
    "randrange": lambda self, x: F.relu(self.fc(x)) * random.randrange(1, 9),
    "seed": lambda self, x: (random.seed(5), F.relu(self.fc(x)))[1],
    "initial seed": lambda self, x: F.relu(self.fc(x)) * torch.initial_seed(),
    "torch": lambda self, x: F.relu(self.fc(x)) + torch.normal(0.0, 1.0, (N,)),
    "uniform_": lambda self, x: F.relu(self.fc(x)) + x.clone().uniform_().mean(),
    "rand_like": lambda self, x: F.relu(self.fc(x)) + torch.rand_like(x).mean(),
    "bernoulli": lambda self, x: F.relu(self.fc(x)) * torch.bernoulli(x.sigmoid()).mean(),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_random_numbers(name):
    check_same(lambda: hold(GENERATORS[name]), (torch.randn(4, K),))


TIMES = {
    "time_ns": lambda self, x: (F.relu(self.fc(x)), time_ns()),
    "time.time_ns": lambda self, x: (F.relu(self.fc(x)), time.time_ns()),
    "clock_gettime_ns": lambda self, x: (self.fc(x), time.clock_gettime_ns(time.CLOCK_REALTIME)),
    "now": lambda self, x: (F.relu(self.fc(x)), int(clock.now().timestamp() * 1e9)),
    "utcnow": lambda self, x: (
        F.relu(self.fc(x)),
        int(datetime.datetime.now(datetime.timezone.utc).timestamp() * 1e9),
    ),
    "today": lambda self, x: (F.relu(self.fc(x)), int(clock.today().timestamp() * 1e9)),
}


@pytest.mark.parametrize("name", TIMES)
def test_times(name):
    model, x = hold(TIMES[name]), torch.randn(4, K)
    cutlass_fused.fuse(model)
    for _ in range(2):
        before = time.time_ns()
        _, said = model(x)
        assert before - 10_000 <= said <= time.time_ns()


WRITTEN = {
    "stdout": lambda self, x: (sys.stdout.write("a"), F.relu(self.fc(x)))[1],
    "stderr": lambda self, x: (sys.stderr.write("a"), F.relu(self.fc(x)))[1],
    "writelines": lambda self, x: (sys.stdout.writelines(["a"]), F.relu(self.fc(x)))[1],
    "os": lambda self, x: (os.write(1, b"a"), F.relu(self.fc(x)))[1],
    "print": lambda self, x: (print("a", end=""), F.relu(self.fc(x)))[1],
    "a log": lambda self, x: (_log.error("a"), F.relu(self.fc(x)))[1],
    "a log of a module": lambda self, x: (logging.error("a"), F.relu(self.fc(x)))[1],
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written(name, capfd, caplog):
    model, x = hold(WRITTEN[name]), torch.randn(4, K)
    cutlass_fused.fuse(model)
    assert not caplog.records and "".join(capfd.readouterr()) == ""
    for _ in range(3):
        model(x)
    found = "".join(capfd.readouterr())
    assert len(caplog.records) == 3 if "log" in name else found == "aaa"


class Hooked(nn.Module):
    """Hooks of its children write what its forward reads behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.other = nn.Linear(K, N), nn.Linear(N, N)
        self.net = nn.Sequential(nn.Tanh(), nn.Linear(N, N))
        self.kept, self.scale, self.word = None, 0.0, "none"
        self.register_buffer("mean", torch.zeros(N))
        self.add_hooks()


class KeepsOutput(Hooked):
    def add_hooks(self):
        self.fc.register_forward_hook(lambda m, args, y: setattr(self, "kept", y))

    def forward(self, x):
        self.fc(x)
        return F.relu(self.other(self.kept))


class KeepsInput(Hooked):
    def add_hooks(self):
        self.net[1].register_forward_pre_hook(lambda m, args: setattr(self, "kept", args[0]))

    def forward(self, x):
        y = self.net(F.relu(self.fc(x)))
        return y * self.kept


class CountsCalls(Hooked):
    def add_hooks(self):
        self.fc.register_forward_hook(lambda m, args, y: setattr(self, "scale", self.scale + 1.0))

    def forward(self, x):
        return F.relu(self.other(self.fc(x))) * self.scale


class ReadsBothTimes(CountsCalls):
    def forward(self, x):
        before = self.scale
        return F.relu(self.other(self.fc(x))) * (self.scale - before)


class Branches(Hooked):
    def add_hooks(self):
        self.net.register_forward_hook(lambda m, args, y: setattr(self, "word", "called"))

    def forward(self, x):
        y = self.net(F.relu(self.fc(x)))
        return y * 2.0 if self.word == "called" else y


class KeepsMean(Hooked):
    def add_hooks(self):
        self.fc.register_forward_hook(lambda m, args, y: setattr(self, "mean", y.mean(0).detach()))

    def forward(self, x):
        return F.relu(self.other(self.fc(x) - self.mean)) + self.mean


class WritesWeight(Hooked):
    def add_hooks(self):
        def write(m, args, y):
            self.other.bias = nn.Parameter(torch.full((N,), 2.0))

        self.fc.register_forward_hook(write)

    def forward(self, x):
        return F.relu(self.other(torch.tanh(self.fc(x))))


class Tells(nn.Module):
    """Its own forward writes to the model that it is in."""

    def __init__(self, owner) -> None:
        super().__init__()
        self.owner = (owner,)

    def forward(self, x):
        self.owner[0].scale = self.owner[0].scale + 1.0
        return x * 2.0


class IsTold(Hooked):
    def add_hooks(self):
        self.tells = Tells(self)

    def forward(self, x):
        return F.relu(self.other(self.tells(self.fc(x)))) * self.scale


HOOKED = [KeepsOutput, KeepsInput, CountsCalls, ReadsBothTimes, Branches, KeepsMean]
HOOKED += [WritesWeight, IsTold]


@pytest.mark.parametrize("kind", HOOKED)
def test_hooks_that_write_to_the_parent(kind):
    check_same(kind, (torch.randn(4, K),), (torch.randn(3, K),))


def _tag_result(self, x):
    y = F.relu(self.fc(x))
    y.tag = "a"
    return y


def _tag_input(self, x):
    x.tag = getattr(x, "tag", 0) + 1
    return F.relu(self.fc(x))


@pytest.mark.parametrize("forward", [_tag_result, _tag_input])
def test_attributes_of_tensors(forward):
    model = hold(forward)
    cutlass_fused.fuse(model)
    for _ in range(2):
        x = torch.randn(4, K)
        tagged = model(x) if forward is _tag_result else (model(x), x)[1]
        assert vars(tagged) == {"tag": "a" if forward is _tag_result else 1}


# What a forward asks, by a value of each of two settings, and how they are set.
SETTINGS = {
    "default dtype": (
        lambda self, x: F.relu(self.fc(x)) * (2.0 if torch.get_default_dtype() == x.dtype else 1.0),
        lambda is_first: torch.set_default_dtype(torch.float32 if is_first else torch.float64),
    ),
    "default dtype, a word": (
        lambda self, x: (F.relu(self.fc(x)), str(torch.get_default_dtype())),
        lambda is_first: torch.set_default_dtype(torch.float32 if is_first else torch.float64),
    ),
    "deterministic": (
        lambda self, x: (self.fc(x).relu(), torch.are_deterministic_algorithms_enabled()),
        lambda is_first: torch.use_deterministic_algorithms(not is_first),
    ),
    "precision": (
        lambda self, x: (F.relu(self.fc(x)), torch.get_float32_matmul_precision()),
        lambda is_first: torch.set_float32_matmul_precision("highest" if is_first else "high"),
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_change(name):
    forward, set_to = SETTINGS[name]
    model, plain = hold(forward), hold(forward)
    plain.load_state_dict(model.state_dict())
    cutlass_fused.fuse(model)
    x = torch.randn(4, K)
    try:
        for is_first in (True, False, True):
            set_to(is_first)
            check_equal(name, observe(model, (x,)), observe(plain, (x,)))
    finally:
        set_to(True)


def _set_precision(self, x):
    torch.set_float32_matmul_precision("high")
    return F.relu(self.fc(x))


def test_settings_that_are_set():
    model = hold(_set_precision)
    cutlass_fused.fuse(model)
    for _ in range(2):
        assert torch.get_float32_matmul_precision() == "highest"
        model(torch.randn(4, K))
        assert torch.get_float32_matmul_precision() == "high"
        torch.set_float32_matmul_precision("highest")
