"""Programs as kernels of their own, compiled for the host."""

import ctypes
import subprocess
from typing import NamedTuple

import torch
from host_program import compile_host_program
from printed_programs import ROOT, name_host_compiler

SHIM = "tests/host/programs/device_grid.hpp"
MOST_INPUTS, MOST_OUTPUTS = 17, 8


class Params(ctypes.Structure):
    """PointwiseParams of include/cutlass_fused/program/pointwise.hpp."""

    _fields_ = (
        ("inputs", ctypes.c_void_p * MOST_INPUTS),
        ("outputs", ctypes.c_void_p * MOST_OUTPUTS),
        ("input_strides", ctypes.c_longlong * MOST_INPUTS),
        ("output_stride", ctypes.c_longlong),
        ("rows", ctypes.c_int),
        ("pieces", ctypes.c_int),
    )


class Kernel(NamedTuple):
    """inputs: of each, its dtype and its kind; outputs: dtypes; sums: which of them are sums over
    the rows, () is none."""

    text: str
    piece: int
    inputs: tuple[tuple[torch.dtype, str], ...]
    outputs: tuple[torch.dtype, ...]
    sums: tuple[bool, ...] = ()

    @property
    def out(self) -> str:
        sums = self.sums or (False,) * len(self.outputs)
        pairs = zip(self.outputs, sums, strict=True)
        return ",".join("sum:" * is_sum + name_of(dtype) for dtype, is_sum in pairs)

    @property
    def request(self) -> str:
        inputs = ",".join(f"{name_of(dtype)}:{kind}" for dtype, kind in self.inputs)
        return f"{self.piece} {inputs} {self.out} {self.text.encode().hex()}"


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def make_request_printer(folder):
    """print_all(requests, for_host) -> sources."""
    program = compile_host_program("programs/print_pointwise", folder)

    def print_all(requests, for_host=False):
        return "\n".join(program([*(["host"] if for_host else []), *requests])).split("\n====")[:-1]

    return print_all


def make_kernel_printer(folder):
    """print_all(kernels, for_host) -> their sources."""
    print_requests = make_request_printer(folder)

    def print_all(kernels, for_host=False):
        return print_requests([kernel.request for kernel in kernels], for_host)

    return print_all


def compile_cases(sources, folder, shim, arguments, call):
    """The library of run(index, params, arguments ...), which has kernel `index` called.

    shim: the header that stands for a GPU. arguments: as C++ declares them. call: of a kernel, with
    {i} for its namespace and {params} for its parameters.
    """
    parts, cases = [f'#include "{ROOT / shim}"'], []
    for i, source in enumerate(sources):
        # A kernel is named alike in each, so not as C names it.
        of_cpp = source.replace('extern "C"', "")
        parts.append(f"namespace case{i} {{\n{of_cpp}\n}}")
        params = f"*static_cast<case{i}::Params const*>(params)"
        cases.append(f"case {i}: return {call.format(i=i, params=params)};")
    parts += [
        f'extern "C" void run(int index, void const* params, {arguments}) {{',
        "  switch (index) {",
        *cases,
        "  }\n}\n",
    ]
    path = folder / "kernels.cpp"
    path.write_text("\n".join(parts))
    options = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-w", "-pthread"]
    library = path.with_suffix(".so")
    subprocess.run([name_host_compiler(), *options, path, "-o", library], check=True)
    return ctypes.CDLL(str(library))


def make_params(inputs, outputs):
    """Without the stride of outputs and the pieces of a row, which kernels of rows know."""
    params = Params()
    for i, each in enumerate(inputs):
        params.inputs[i] = each.data_ptr()
        params.input_strides[i] = each.stride(0) if each.dim() == 2 else 0
    for i, each in enumerate(outputs):
        params.outputs[i] = each.data_ptr()
    params.rows = inputs[0].shape[0]
    return params


def compile_kernels(sources, folder):
    """run(index, piece, inputs, outputs, grid, block): a kernel on tensors, outputs written in
    place."""
    compiled = compile_cases(
        sources,
        folder,
        SHIM,
        "unsigned grid_x, unsigned grid_y, unsigned block_x, unsigned block_y",
        "run_grid(case{i}::cutlass_fused_pointwise, {params}, {{grid_x, grid_y}}, "
        "{{block_x, block_y}})",
    )

    def run(index, piece, inputs, outputs, grid, block):
        params = make_params(inputs, outputs)
        params.output_stride = outputs[0].stride(0)
        params.pieces = outputs[0].shape[1] // piece
        compiled.run(index, ctypes.byref(params), *grid, *block)

    return run
