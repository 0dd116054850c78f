"""Ops that make a tensor of one number, which a program has as that number."""

import math

import torch

_aten = torch.ops.aten


def _first(value, *_, **__):
    return value


def _second(_, value, *__, **___):
    return value


def _third(_, __, value, *___, **____):
    return value


def _zero(*_, **__):
    return 0.0


def _nothing(*_, **__):
    """Of a tensor that is written later."""
    return math.nan


def _one(*_, **__):
    return 1.0


CONSTANTS = {
    _aten.scalar_tensor.default: _first,
    _aten.full.default: _second,
    _aten.full_like.default: _second,
    _aten.fill.Scalar: _second,
    _aten.new_full.default: _third,
    _aten.empty.memory_format: _nothing,
    _aten.empty_like.default: _nothing,
    _aten.zeros.default: _zero,
    _aten.zeros_like.default: _zero,
    _aten.new_zeros.default: _zero,
    _aten.zero.default: _zero,
    _aten.ones.default: _one,
    _aten.ones_like.default: _one,
    _aten.new_ones.default: _one,
}
# ... and that write it to the tensor that they are given.
WRITTEN_CONSTANTS = {_aten.fill_.Scalar: _second, _aten.zero_.default: _zero}
