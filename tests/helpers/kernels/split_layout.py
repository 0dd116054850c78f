"""What lies where in a split of rows, without what pads it."""

import torch


def draw_weight(shape, aligned=True):
    """Rows of whole 16 bytes, from a multiple of them on where `aligned`."""
    n, k = shape
    pitch = -(-k // 4) * 4 + 4
    return torch.randn(n, pitch, device="cuda")[:, 0 if aligned else 1 :][:, :k]


def cut(split, shape, precision):
    """The numbers and the scales of each row, as bytes."""
    n, k = shape
    pitch = -(-k // 64) * 128 if precision == "ieee" else -(-k // 8) * 8
    rows = split[: n * pitch * 2].view(n, -1)
    scales = split[-(-n * pitch * 2 // 256) * 256 :].view(n, 4)
    return torch.cat([rows, scales], dim=1)


def cut_kept(kept, shape, precision):
    """The marks of what keep_split returned, and the same of what is behind them."""
    marks = -(-shape[0] * 8 // 256) * 256
    return kept[: shape[0] * 8].view(torch.int64), cut(kept[marks:], shape, precision)
