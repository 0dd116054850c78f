"""Calls that launch every kernel of backward passes."""

import torch
from layouts import misalign_rows, offset_storage, transpose


def run_gradients(dtype):
    """The kernels of backward passes, which read rows in pieces, or a number at a time."""
    launches, ops = 0, torch.ops.cutlass_fused
    for shape in ((1, 1), (5, 7), (133, 264), (700, 129), (3, 1000)):
        x, z = (torch.randn(shape, device="cuda").to(dtype) for _ in range(2))
        rstd, mean = torch.rand(2, shape[1], device="cuda")
        for each in (x, misalign_rows(x), transpose(x)):
            for op, arguments in (
                (ops.leaky_relu_gradient, (each, z > 0, 1.5, -0.25)),
                (ops.batch_norm_gradient, (each, z, mean, rstd, None)),
                (ops.batch_norm_gradient, (each, z, mean, rstd, rstd, mean)),
                (ops.batch_norm_scale_gradient, (each, z, mean, rstd, mean, rstd, mean)),
            ):
                results = op(*arguments)
                torch.cuda.synchronize()
                host = (v.cpu() if isinstance(v, torch.Tensor) else v for v in arguments)
                for result, expected in zip(results, op(*host), strict=True):
                    torch.testing.assert_close(result.cpu(), expected, rtol=2e-2, atol=2e-2)
                launches += 1
        launches += run_scale_gradient(x, z)
    return launches + run_softmax_gradient(dtype)


def run_scale_gradient(x, z):
    """With an eps of which half of the rows, or columns, have more in their variance."""
    ops, eps = torch.ops.cutlass_fused, 0.5
    of_rows, of_columns = (2 * torch.rand(size, device="cuda") for size in x.shape)
    for op, operands in (
        (ops.unscale_columns, (z, x.clone(), *[of_columns] * 4, eps, of_columns)),
        (ops.scale_gradient, (z, of_rows, of_rows, of_rows, eps, None)),
    ):
        written, host = x.clone(), x.cpu()
        op(written, *operands)
        torch.cuda.synchronize()
        op(host, *(v.cpu() if isinstance(v, torch.Tensor) else v for v in operands))
        torch.testing.assert_close(written.cpu(), host, rtol=2e-2, atol=2e-2)
    return 2


def run_softmax_gradient(dtype):
    """Rows of some lanes, of a warp, of a block, and longer ones."""
    launches, op = 0, torch.ops.cutlass_fused.softmax_gradient
    for shape in ((1, 1), (70, 3), (9, 24), (17, 33), (5, 264), (3, 1001), (3, 8192), (3, 20001)):
        x, y = torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda").softmax(-1)
        x, y = x.to(dtype), y.to(dtype)
        for each in (x, offset_storage(x), transpose(x)):
            grad = op(each, y)
            torch.cuda.synchronize()
            torch.testing.assert_close(grad.cpu(), op(each.cpu(), y.cpu()), rtol=2e-2, atol=1e-4)
            launches += 1
    return launches
