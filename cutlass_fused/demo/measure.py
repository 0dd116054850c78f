"""One model in one precision: errors and times of its variants."""

from typing import NamedTuple

import torch

from ..comparison import (
    MODELS,
    PRECISIONS,
    compute_error,
    compute_truth,
    keep_seed,
    set_matmul_precision,
    share_product,
)
from ..timing import time_in_turns


class Size(NamedTuple):
    batch: int
    features: int  # both K and N


def measure(name: str, precision: str, size: Size, device: str) -> list[dict]:
    """A row for each variant: what the result files of the benches say of one, but the suite."""
    model, (_, dtype, setting) = MODELS[name], PRECISIONS[precision]
    # The calls of earlier models count towards the limit on recompilations, at which torch.compile
    # silently becomes eager.
    torch.compiler.reset()
    with torch.no_grad(), keep_seed(device), set_matmul_precision(setting):
        torch.manual_seed(0)
        with torch.device(device):
            plain = model.build_plain(size.features, size.features).to(dtype)
            x = torch.rand(size.batch, size.features).to(dtype)
        plain.train(model.mode == "train")
        variants = {
            "ours": model.fuse(share_product(plain), setting),
            "eager": share_product(plain),
        }
        if device == "cuda":
            variants["compile"] = torch.compile(share_product(plain))
        truth = compute_truth(plain, x).y
        errors = {variant: compute_error(run(x), truth) for variant, run in variants.items()}
        runs = {variant: (lambda run=run: run(x)) for variant, run in variants.items()}
        timings = time_in_turns(runs, device)
    case = {"model": name, "mode": model.mode, "precision": precision}
    case |= {"M": size.batch, "N": size.features, "K": size.features}
    return [
        {
            **case,
            "variant": variant,
            "ms": timing.median,
            "ms_min": timing.least,
            "ms_max": timing.most,
            "rel_err": errors[variant],
        }
        for variant, timing in timings.items()
    ]
