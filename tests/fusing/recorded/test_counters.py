"""Counters, lists and the like that a forward writes outside of its model."""

import types

import pytest
import torch
from linear_tails import K, N
from same_effects import check_same
from torch import nn
from torch.nn import functional as F

import cutlass_fused


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.other = nn.Linear(K, N), nn.Linear(N, N)


def _count_nonlocal():
    calls = 0

    class Model(Base):
        def forward(self, x):
            nonlocal calls
            calls += 1
            return F.relu(self.fc(x)) * calls

    return Model(), lambda: calls


def _count_nonlocal_within():
    calls = 0

    def count():
        nonlocal calls
        calls += 1
        return calls

    class Model(Base):
        def forward(self, x):
            return F.relu(self.fc(x)) * count()

    return Model(), lambda: calls


def _count_of_class():
    class Model(Base):
        n = 0

        def forward(self, x):
            Model.n += 1
            return F.relu(self.fc(x))

    return Model(), lambda: Model.n


def _count_of_dunder_class():
    class Model(Base):
        n = 0

        def forward(self, x):
            self.__class__.n += 1
            return F.relu(self.fc(x)) * self.n

    return Model(), lambda: Model.n


def _count_in_classmethod():
    class Model(Base):
        n = 0

        @classmethod
        def count(cls):
            cls.n += 1

        def forward(self, x):
            self.count()
            return F.relu(self.fc(x))

    return Model(), lambda: Model.n


def _delete_of_class():
    class Model(Base):
        n = 0

        def forward(self, x):
            del Model.n
            return F.relu(self.fc(x))

    return Model(), lambda: vars(Model).get("n")


def _set_of_class():
    class Model(Base):
        n = 0

        def forward(self, x):
            setattr(Model, "n", Model.n + 1)  # noqa: B010
            return F.relu(self.fc(x))

    return Model(), lambda: Model.n


def _list_of_class():
    class Model(Base):
        log = []

        def forward(self, x):
            Model.log.append(1)
            return F.relu(self.fc(x)) * len(Model.log)

    return Model(), lambda: Model.log


def _list_of_another_class():
    class Log:
        seen = []

    class Model(Base):
        def forward(self, x):
            Log.seen.append(x.mean())
            return F.relu(self.fc(x))

    return Model(), lambda: Log.seen


def _dict_of_class():
    class Model(Base):
        kept = {}

        def forward(self, x):
            self.__class__.kept["y"] = y = F.relu(self.fc(x))
            return y

    return Model(), lambda: Model.kept


def _attribute_of_function():
    def count(x):
        count.calls += 1
        return x * count.calls

    count.calls = 0

    class Model(Base):
        def forward(self, x):
            return count(F.relu(self.fc(x)))

    return Model(), lambda: count.calls


def _attribute_of_forward():
    class Model(Base):
        def forward(self, x):
            Model.forward.calls = getattr(Model.forward, "calls", 0) + 1
            return F.relu(self.fc(x))

    return Model(), lambda: getattr(Model.forward, "calls", 0)


def _default_of_function():
    def count(x, seen=[]):  # noqa: B006
        seen.append(1)
        return x * len(seen)

    class Model(Base):
        def forward(self, x):
            return count(F.relu(self.fc(x)))

    return Model(), lambda: count.__defaults__


def _keyword_default_of_function():
    def count(x, *, seen=[]):  # noqa: B006
        seen.append(1)
        return x * len(seen)

    class Model(Base):
        def forward(self, x):
            return count(F.relu(self.fc(x)))

    return Model(), lambda: count.__kwdefaults__


def _attribute_of_module():
    counts = types.ModuleType("counts")
    counts.n = 0

    class Model(Base):
        def forward(self, x):
            counts.n += 1
            return F.relu(self.fc(x)) * counts.n

    return Model(), lambda: counts.n


def _list_of_module():
    counts = types.ModuleType("counts")
    counts.seen = []

    class Model(Base):
        def forward(self, x):
            counts.seen.append(1)
            return F.relu(self.fc(x)) * len(counts.seen)

    return Model(), lambda: counts.seen


def _bound_append():
    seen = []
    append = seen.append

    class Model(Base):
        def forward(self, x):
            append(1)
            return F.relu(self.fc(x))

    return Model(), lambda: seen


def _list_of_a_property():
    seen = []

    class Model(Base):
        @property
        def factor(self):
            seen.append(1)
            return len(seen)

        def forward(self, x):
            return F.relu(self.fc(x)) * self.factor

    return Model(), lambda: seen


def _by_tree_map():
    seen = []

    def count(x):
        seen.append(1)
        return x * len(seen)

    class Model(Base):
        def forward(self, x):
            return torch.utils._pytree.tree_map(count, (F.relu(self.fc(x)),))

    return Model(), lambda: seen


def _by_apply():
    seen = []

    class Model(Base):
        def forward(self, x):
            self.fc.apply(lambda module: seen.append(1))
            return F.relu(self.fc(x))

    return Model(), lambda: seen


def _next_of_generator():
    numbers = iter(range(1, 99))

    def draw(numbers=numbers):
        return next(numbers)

    class Model(Base):
        def forward(self, x):
            return F.relu(self.fc(x)) * draw()

    return Model()


COUNTS = {name: e for name, e in list(globals().items()) if type(e) is types.FunctionType}
COUNTS = {name: make for name, make in COUNTS.items() if name[0] == "_"}


@pytest.mark.parametrize("name", COUNTS)
def test_what_is_counted(name):
    x = torch.randn(4, K)
    check_same(COUNTS[name], (x,))
    model = COUNTS[name]()
    model, read = model if isinstance(model, tuple) else (model, lambda: None)
    before = str(read())
    cutlass_fused.fuse(model)
    assert str(read()) == before
