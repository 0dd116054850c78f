"""Whole tensors and what each process has of them."""

import functools

import torch
from torch.distributed import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor


@functools.cache
def make_mesh(*shape):
    return init_device_mesh("cpu", shape)


def cut(tensor, *placements, mesh=None):
    """A leaf of its own. A mesh of more dimensions has them along the last."""
    mesh = mesh or make_mesh(2)
    placements = [Replicate()] * (mesh.ndim - len(placements)) + list(placements)
    # Every process has drawn the same numbers: nothing is sent.
    leaf = distribute_tensor(tensor.detach().clone(), mesh, placements, src_data_rank=None)
    return leaf.requires_grad_(tensor.requires_grad)


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def close(ours, expected):
    torch.testing.assert_close(
        [whole(t) for t in ours], [whole(t) for t in expected], rtol=1e-11, atol=1e-11
    )


def message(call, kind=RuntimeError):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was raised")
