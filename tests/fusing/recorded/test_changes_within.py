"""Forwards that change the model they are of: it is what it would be, also right behind fuse."""

import types

import pytest
import torch
from linear_tails import K, N
from same_effects import Holder, check_same, hold
from torch import nn
from torch.fx import Proxy
from torch.nn import functional as F

import cutlass_fused


def reset(module):
    nn.init.ones_(module.bias)


def _register_first(self, x):
    if self.kept is None:
        self.register_buffer("kept", x.detach().mean(0))
    return F.relu(self.fc(x - self.kept))


def _register_again(self, x):
    y = F.relu(self.fc(x))
    self.register_buffer("kept", y.detach())
    return y


def _register_not_kept(self, x):
    self.register_buffer("other_kept", x.detach(), persistent=False)
    return F.relu(self.fc(x))


def _register_parameter(self, x):
    self.register_parameter("gain", self.fc.bias)
    return F.relu(self.other(x)) * self.gain


def _register_no_parameter(self, x):
    self.register_parameter("gain", None)
    return F.relu(self.fc(x))


def _register_of_child(self, x):
    y = F.relu(self.fc(x))
    self.fc.register_buffer("last", y.detach())
    return y


def _add_module(self, x):
    self.add_module("extra", self.fc)
    return F.relu(self.extra(x))


def _register_module(self, x):
    self.register_module("extra", None)
    return F.relu(self.fc(x))


def _append_to_list(self, x):
    self.layers.append(self.fc)
    return F.relu(self.layers[-1](x)) * self.scales[0]


def _put_into_dict(self, x):
    self.parts["last"] = self.fc
    return F.relu(self.parts["last"](x))


def _update_dict(self, x):
    self.parts.update({"last": self.fc})
    return F.relu(self.fc(x))


def _append_parameter(self, x):
    self.scales.append(self.fc.bias)
    return F.relu(self.fc(x))


def _hook_first(self, x):
    if not self._forward_hooks:
        self.register_forward_hook(lambda m, args, y: y * 2.0)
    return F.relu(self.fc(x))


def _hook_always(self, x):
    self.register_forward_hook(lambda m, args, y: y * 2.0)
    return F.relu(self.fc(x))


def _hook_for_a_call(self, x):
    handle = self.fc.register_forward_hook(lambda m, args, y: y * 2.0)
    y = F.relu(self.fc(x))
    handle.remove()
    return y


def _pre_hook(self, x):
    self.fc.register_forward_pre_hook(lambda m, args: (args[0] * 2.0,))
    return F.relu(self.fc(x))


def _backward_hook(self, x):
    self.fc.register_full_backward_hook(lambda m, given, grads: (given[0],))
    return F.relu(self.fc(x))


def _backward_pre_hook(self, x):
    self.fc.register_full_backward_pre_hook(lambda m, grads: (grads[0] * 2.0,))
    return F.relu(self.fc(x))


def _state_dict_hook(self, x):
    self.register_state_dict_post_hook(lambda m, state, prefix, local: None)
    return F.relu(self.fc(x))


def _tensor_hook(self, x):
    z = self.fc(x)
    if z.requires_grad:
        z.register_hook(lambda grad: grad * 2.0)
    return F.relu(z)


def _tensor_hook_always(self, x):
    z = self.fc(x)
    z.register_hook(lambda grad: grad * 2.0)
    return F.relu(z)


def _set_by_object(self, x):
    object.__setattr__(self, "n", self.n + 1)
    return F.relu(self.fc(x))


def _set_by_super(self, x):
    super(Holder, self).__setattr__("n", self.n + 1)
    return F.relu(self.fc(x)) * self.n


def _delete_by_object(self, x):
    object.__setattr__(self, "passing", 1)
    object.__delattr__(self, "passing")
    return F.relu(self.fc(x))


def _set_in_dict(self, x):
    self.__dict__["n"] = self.n + 1
    return F.relu(self.fc(x))


def _set_of_child(self, x):
    nn.Module.__setattr__(self.fc, "n", self.n)
    return F.relu(self.fc(x))


def _go_to_eval(self, x):
    self.drop.eval()
    return self.drop(F.relu(self.fc(x)))


def _freeze(self, x):
    self.fc.bias.requires_grad_(False)
    return F.relu(self.fc(x))


def _zero_grad(self, x):
    self.zero_grad()
    return F.relu(self.fc(x))


def _freeze_module(self, x):
    self.fc.requires_grad_(False)
    return F.relu(self.fc(x))


def _init_bias(self, x):
    nn.init.zeros_(self.fc.bias)
    return F.relu(self.fc(x))


def _init_layer(self, x):
    self.fc.reset_parameters()
    return F.relu(self.fc(x))


def _init_by_a_function(self, x):
    self.fc.apply(reset)
    return F.relu(self.fc(x))


def _double(self, x):
    self.fc.double()
    return F.relu(self.fc(x.double()))


def _append_in_tuple(self, x):
    self.nested[0].append(1)
    return F.relu(self.fc(x)) * len(self.nested[0])


def _write_namespace(self, x):
    self.space.n += 1
    return F.relu(self.fc(x)) * self.space.n


CHANGES = {name: e for name, e in list(globals().items()) if type(e) is types.FunctionType}
CHANGES = {name: each for name, each in CHANGES.items() if name[0] == "_"}
STARTS = {"_register_first": None, "_register_again": torch.zeros(N)}


def _make(name):
    model = hold(
        CHANGES[name],
        n=lambda: 0,
        drop=lambda: nn.Dropout(0.5),
        layers=lambda: nn.ModuleList([nn.Linear(K, N)]),
        parts=lambda: nn.ModuleDict({"last": nn.Linear(K, N)}),
        scales=lambda: nn.ParameterList([nn.Parameter(torch.rand(N))]),
        nested=lambda: ([],),
        space=lambda: types.SimpleNamespace(n=0),
    )
    start = STARTS.get(name)
    model.register_buffer("kept", None if start is None else start.clone())
    return model, lambda: model.space.n


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("name", CHANGES)
def test_changes(name):
    model, _ = _make(name)
    keys = list(model.state_dict())
    cutlass_fused.fuse(model)
    assert list(model.state_dict()) == keys
    for module in model.modules():
        held = [vars(module), module._parameters, module._buffers, module._modules]
        assert not any(isinstance(e, Proxy) for place in held for e in place.values())
    check_same(lambda: _make(name), (torch.randn(4, K),))
