"""Models as cuDNN graphs: the product and its tail in one kernel.

Model 12 is product, bias, scale and LeakyReLU; `linear` ends behind the bias; models 33 and 39
in eval are the product and one affine map per column, which is worked out beforehand. Batch
statistics and a row softmax cannot follow a product in one cuDNN kernel.

It needs the package nvidia-cudnn-frontend (written for 1.18.0, which needs no other package); the
cuDNN library is the one that comes with PyTorch. Everything known of that package is in this file.
"""

import functools
from collections.abc import Callable, Sequence

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


class LinearGraph:
    """A graph that begins with z = x @ weight.T; everything between z and y is fp32.

    `shape` is (M, N, K); `options` go to cudnn.pygraph. `operands` are the tensors that a run
    takes, as cuDNN describes them: x, weight, those that were added, and y.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: torch.dtype, **options) -> None:
        import cudnn

        m, n, k = shape
        self.columns, self.fp32 = n, cudnn.data_type.FLOAT
        self.io = {
            torch.float32: self.fp32,
            torch.bfloat16: cudnn.data_type.BFLOAT16,
            torch.float16: cudnn.data_type.HALF,
        }[dtype]
        self.graph = cudnn.pygraph(
            io_data_type=self.io,
            intermediate_data_type=self.fp32,
            compute_data_type=self.fp32,
            **options,
        )
        x = self.graph.tensor(name="x", dim=[1, m, k], stride=[m * k, k, 1], data_type=self.io)
        # (N, K), row-major, read as its transpose.
        weight = self.graph.tensor(
            name="weight", dim=[1, k, n], stride=[k * n, 1, k], data_type=self.io
        )
        self.operands = [x, weight]
        self.z = self.graph.matmul(A=x, B=weight)

    def add_row(self, name: str, data_type=None):
        """A vector (N,); of the dtype of x unless a type is given."""
        n = self.columns
        row = self.graph.tensor(
            name=name, dim=[1, 1, n], stride=[n, n, 1], data_type=data_type or self.io
        )
        self.operands.append(row)
        return row

    def add_number(self, name: str):
        """An fp32 number, which cuDNN reads on the host."""
        number = self.graph.tensor(
            name=name,
            dim=[1, 1, 1],
            stride=[1, 1, 1],
            data_type=self.fp32,
            is_pass_by_value=True,
        )
        self.operands.append(number)
        return number

    def finish(self, y) -> None:
        y.set_output(True).set_data_type(self.io)
        self.operands.append(y)


def define_scale_leaky_relu(shape, dtype, negative_slope: float, **options) -> LinearGraph:
    """y = leaky_relu((z + bias) * scale, negative_slope); scale is a number."""
    linear = LinearGraph(shape, dtype, **options)
    graph, bias, scale = linear.graph, linear.add_row("bias"), linear.add_number("scale")
    v = graph.mul(a=graph.bias(input=linear.z, bias=bias), b=scale)
    linear.finish(graph.leaky_relu(input=v, negative_slope=negative_slope))
    return linear


def define_linear(shape, dtype, **options) -> LinearGraph:
    """y = z + bias."""
    linear = LinearGraph(shape, dtype, **options)
    linear.finish(linear.graph.bias(input=linear.z, bias=linear.add_row("bias")))
    return linear


def define_affine(shape, dtype, **options) -> LinearGraph:
    """y = z * factor + shift, both of shape (N,) and fp32."""
    linear = LinearGraph(shape, dtype, **options)
    factor = linear.add_row("factor", linear.fp32)
    shift = linear.add_row("shift", linear.fp32)
    linear.finish(linear.graph.add(a=linear.graph.mul(a=linear.z, b=factor), b=shift))
    return linear


def build_scale_leaky_relu(
    x: Tensor, weight: Tensor, bias: Tensor, scale: float, negative_slope: float
) -> Callable[[], Tensor]:
    """A run as `build_run` says. bias (N,): of the dtype of x."""
    define = functools.partial(define_scale_leaky_relu, negative_slope=negative_slope)
    value = torch.full((1, 1, 1), scale, dtype=torch.float32, device="cpu")
    return build_run(define, x, weight, [bias, value])


def build_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Callable[[], Tensor]:
    """A run as `build_run` says. bias (N,): of the dtype of x."""
    return build_run(define_linear, x, weight, [bias])


def build_scale_batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor, bn: torch.nn.BatchNorm1d
) -> Callable[[], Tensor]:
    """A run as `build_run` says, with running statistics. bias and scale: (N,)."""
    rstd = torch.rsqrt(bn.running_var.double() + bn.eps)
    factor = rstd * bn.weight.double()
    shift = (bias.double() * scale.double() - bn.running_mean.double()) * factor + bn.bias.double()
    rows = [(scale.double() * factor).float(), shift.float()]
    return build_run(define_affine, x, weight, rows)


@functools.cache
def create_handle() -> int:
    """One for all graphs, as nobody destroys it."""
    import cudnn

    return cudnn.create_handle()


def build_run(
    define: Callable[..., LinearGraph], x: Tensor, weight: Tensor, others: Sequence[Tensor]
) -> Callable[[], Tensor]:
    """A function that runs the fastest of the plans that cuDNN's heuristic proposes.

    x (M, K), weight (N, K): contiguous CUDA tensors of one dtype; `others` in the order in which
    `define` adds them. The result, (M, N), is a new tensor on each call. Raises cuDNN's own
    exceptions where it has no kernel.
    """
    import cudnn

    handle = create_handle()
    linear = define((len(x), len(weight), x.shape[1]), x.dtype, handle=handle)
    graph = linear.graph
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])
    graph.check_support()
    plans = build_plans(graph)
    size = max(graph.get_workspace_size_plan_at_index(plan) for plan in plans)
    workspace = torch.empty(size, dtype=torch.uint8, device=x.device)

    def run(plan: int) -> Tensor:
        y = x.new_empty(len(x), len(weight))
        # Not that of the building: a call may be captured, which another stream does.
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        buffers = zip(linear.operands, (x, weight, *others, y), strict=True)
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
