"""Model 12 as a cuDNN graph: product, bias, scale and LeakyReLU in one kernel.

It needs the package nvidia-cudnn-frontend (written for 1.18.0, which needs no other package); the
cuDNN library is the one that comes with PyTorch. Everything known of that package is in this file.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from cutlass_fused.timing import time_in_turns

# The heuristic gives the best plans first, and not many; each takes a second to compile.
MOST_PLANS = 8


def find_obstacle() -> str | None:
    """Why no graph can be built here; None where the package can be imported."""
    try:
        import cudnn  # noqa: F401
    # It loads the cuDNN library when imported, which can fail in ways of its own.
    except Exception as error:
        return f"the package nvidia-cudnn-frontend cannot be imported: {error}"
    return None


class Operands(NamedTuple):
    """The tensors of a graph, as cuDNN describes them."""

    x: object
    weight: object
    bias: object
    scale: object
    y: object


def define_scale_leaky_relu(
    shape: tuple[int, int, int], dtype: torch.dtype, negative_slope: float, **options
):
    """(graph, operands) of y = leaky_relu((x @ weight.T + bias) * scale, negative_slope).

    `shape` is (M, N, K); everything between product and y is fp32; `options` go to the graph.
    """
    import cudnn

    m, n, k = shape
    fp32 = cudnn.data_type.FLOAT
    io = {
        torch.float32: fp32,
        torch.bfloat16: cudnn.data_type.BFLOAT16,
        torch.float16: cudnn.data_type.HALF,
    }[dtype]
    graph = cudnn.pygraph(
        io_data_type=io, intermediate_data_type=fp32, compute_data_type=fp32, **options
    )
    x = graph.tensor(name="x", dim=[1, m, k], stride=[m * k, k, 1], data_type=io)
    # (N, K), row-major, read as its transpose.
    weight = graph.tensor(name="weight", dim=[1, k, n], stride=[k * n, 1, k], data_type=io)
    bias = graph.tensor(name="bias", dim=[1, 1, n], stride=[n, n, 1], data_type=io)
    scale = graph.tensor(
        name="scale", dim=[1, 1, 1], stride=[1, 1, 1], data_type=fp32, is_pass_by_value=True
    )
    z = graph.bias(input=graph.matmul(A=x, B=weight), bias=bias)
    y = graph.leaky_relu(input=graph.mul(a=z, b=scale), negative_slope=negative_slope)
    y.set_output(True).set_data_type(io)
    return graph, Operands(x, weight, bias, scale, y)


def build_scale_leaky_relu(
    x: Tensor, weight: Tensor, bias: Tensor, scale: float, negative_slope: float
) -> Callable[[], Tensor]:
    """A function that runs the fastest of the plans that cuDNN's heuristic proposes.

    x (M, K), weight (N, K), bias (N,): contiguous CUDA tensors of one dtype. The result, (M, N), is
    a new tensor on each call. Raises cuDNN's own exceptions where it has no kernel.
    """
    import cudnn

    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    shape = len(x), len(weight), x.shape[1]
    graph, operands = define_scale_leaky_relu(shape, x.dtype, negative_slope, handle=handle)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])
    graph.check_support()
    plans = build_plans(graph)
    size = max(graph.get_workspace_size_plan_at_index(plan) for plan in plans)
    workspace = torch.empty(size, dtype=torch.uint8, device=x.device)
    # cuDNN reads the value on the host.
    value = torch.full((1, 1, 1), scale, dtype=torch.float32, device="cpu")

    def run(plan: int) -> Tensor:
        y = x.new_empty(len(x), len(weight))
        buffers = zip(operands, (x, weight, bias, value, y), strict=True)
        graph.execute_plan_at_index(dict(buffers), workspace, plan, handle)
        return y

    runs = {plan: functools.partial(run, plan) for plan in plans}
    timings = time_in_turns(runs, "cuda", rounds=10)
    return runs[min(plans, key=lambda plan: timings[plan].median)]


def build_plans(graph) -> list[int]:
    """The indices of the plans that could be built, at most MOST_PLANS."""
    plans, failure = [], None
    for plan in range(min(graph.get_execution_plan_count(), MOST_PLANS)):
        try:
            graph.build_plan_at_index(plan)
        except Exception as error:
            failure = error
        else:
            plans.append(plan)
    if not plans:
        raise RuntimeError(f"cuDNN could build none of its plans: {failure}")
    return plans
