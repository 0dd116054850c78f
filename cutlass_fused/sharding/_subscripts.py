"""Ops whose tensors are cut along the letters of their sizes, as in torch.einsum: batched and added
products, and what backward passes compute."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from ..checks import name_in_messages
from ._layouts import Layout, choose, make_whole
from ._shards import Shards


class Subscripts(NamedTuple):
    """The letters of the sizes of tensors by their names, and of the results; `cuts`: along which
    letters all may be cut. A result without such a letter is a share of a sum."""

    inputs: dict[str, str]
    results: tuple[str, ...]
    cuts: str


_SUM = {"c": "mn", "x": "mk", "weight": "nk"}
_SUMS = {"c": "bmn", "x": "bmk", "weight": "bnk"}
_MATRICES = {"x": "mn", "z": "mn"}
_VECTORS = dict.fromkeys(("mean", "rstd", "gamma", "beta", "scale", "grad_gamma", "grad_beta"), "n")
SUBSCRIPTS = {
    "bmm": Subscripts({"x": "bmk", "weight": "bnk"}, ("bmn",), "bmnk"),
    "linear_out": Subscripts({"y": "mn", "x": "mk", "weight": "nk", "bias": "n"}, (), "mn"),
    # Of a sum over k each process would add c.
    "addmm": Subscripts(_SUM, ("mn",), "mn"),
    "addmm_out": Subscripts({"y": "mn"} | _SUM, (), "mn"),
    "baddbmm": Subscripts(_SUMS, ("bmn",), "bmn"),
    "baddbmm_out": Subscripts({"y": "bmn"} | _SUMS, (), "bmn"),
    "leaky_relu_gradient": Subscripts({"x": "mn", "positive": "mn"}, ("mn", "n"), "mn"),
    # Each element reads how many rows there are, and what they give together.
    "batch_norm_gradient": Subscripts(_MATRICES | _VECTORS, ("mn", "n", "n"), "n"),
    "batch_norm_scale_gradient": Subscripts(_MATRICES | _VECTORS, ("mn", "n", "n", "n"), "n"),
    "unscale_columns": Subscripts({"x": "mn", "grad_y": "mn", "v": "mn"} | _VECTORS, (), "n"),
    "scale_gradient": Subscripts({"x": "nk", "weight": "nk"} | _VECTORS, ("n",), "n"),
    "softmax_gradient": Subscripts({"x": "mn", "y": "mn"}, ("mn",), "m"),
}


def run_subscripts(cls, op, types, args, kwargs):
    """op(*args, **kwargs), which PyTorch calls below autograd."""
    names = [argument.name for argument in op._schema.arguments]
    values = {argument.name: argument.default_value for argument in op._schema.arguments}
    values |= dict(zip(names, args, strict=False)) | (kwargs or {})
    values = {name: values[name] for name in names}
    with torch.no_grad():
        call = _Call(op, values)
        results = op(*(values | call.cut()).values()) if call.takes_part() else None
        call.write_back()
        return call.wrap_results(results)


class _Call(Shards):
    def __init__(self, op, values: dict) -> None:
        from torch._subclasses import FakeTensorMode  # not while PyTorch itself is imported

        name = op._schema.name.partition("::")[2]
        self.subscripts = SUBSCRIPTS[name]
        tensors = {key: value for key, value in values.items() if isinstance(value, Tensor)}
        updated = {a.name for a in op._schema.arguments if a.alias_info is not None}
        super().__init__(name_in_messages(name), tensors, updated)
        # Whole sizes are checked, and tell the sizes of the results.
        with FakeTensorMode():
            wholes = {key: _imitate(tensor) for key, tensor in self.tensors.items()}
            found = op(*(values | wholes).values())
        self.is_alone = isinstance(found, Tensor)
        self.wholes = [found] if self.is_alone else list(found or ())
        layouts = [make_whole(self.tensors, len(self.wholes))]
        inputs = self.subscripts.inputs
        # A matrix of more dimensions has rows that no letter names.
        if self.tensors["x"].dim() == len(inputs["x"]):
            layouts += map(self._cut_along, self.subscripts.cuts)
        self.layouts = [choose(layouts, self.tensors, dim) for dim in range(self.mesh.ndim)]

    def _cut_along(self, letter: str) -> Layout:
        inputs = {name: self._place(name, letter) for name in self.tensors}
        results = tuple(
            Shard(letters.index(letter)) if letter in letters else Partial()
            for letters in self.subscripts.results
        )
        return Layout(letter, inputs, results, inputs)

    def _place(self, name: str, letter: str) -> Placement:
        """One with fewer dimensions, or with one element along some, is repeated along those."""
        tensor = self.tensors[name]
        letters = self.subscripts.inputs[name]
        letters = letters[len(letters) - tensor.dim() :]
        place = letters.find(letter)
        if place < 0 or (tensor.shape[place] == 1 and name in ("c", "scale")):
            return Replicate()
        return Shard(place)

    def wrap_results(self, results):
        if not self.wholes:
            return None
        if results is None:  # of a process that is not in the mesh
            device = next(iter(self.tensors.values())).to_local().device
            found = [torch.empty(0, dtype=each.dtype, device=device) for each in self.wholes]
        else:
            found = [results] if self.is_alone else list(results)
        wrapped = [
            self.wrap(each, [layout.results[i] for layout in self.layouts], *_describe(whole))
            for i, (each, whole) in enumerate(zip(found, self.wholes, strict=True))
        ]
        return wrapped[0] if self.is_alone else tuple(wrapped)


def _imitate(tensor: Tensor) -> Tensor:
    options = {"dtype": tensor.dtype, "device": tensor.device}
    return torch.empty_strided(tensor.shape, tensor.stride(), **options)


def _describe(whole: Tensor) -> tuple[torch.Size, tuple[int, ...]]:
    return whole.shape, whole.stride()
