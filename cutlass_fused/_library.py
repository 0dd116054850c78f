"""Loads the compiled library and completes the ops: fakes, CPU kernels, and what is missing.

Nothing else in the package touches torch.library. Where the library cannot be loaded, for whatever
reason, the ops exist all the same: schemas.txt defines them, CPU tensors run the reference, and
CUDA tensors get a RuntimeError that gives the reason.
"""

import functools
import importlib.metadata
import json
import pathlib

import torch

from . import checks, reference
from ._namespace import NAMESPACE, library_path, ops
from .epilogues import EPILOGUES
from .epilogues._schema import make_schema
from .programs import definition
from .row_ops import ROW_OPS

_FOLDER = pathlib.Path(__file__).parent
_TENSOR_OPS = (
    *(getattr(reference, op) for op in (*EPILOGUES, *ROW_OPS)),
    reference.linear_scale_batch_norm_train,
    reference.linear_batch_norm_scale_softmax_inference,
    reference.linear_batch_norm_scale_softmax_train,
    reference.batch_norm_inference,
    reference.batch_norm_train,
    reference.split_weight,
    reference.bmm,
    reference.linear_out,
    reference.addmm,
    reference.addmm_out,
    reference.baddbmm,
    reference.baddbmm_out,
    reference.leaky_relu_gradient,
    reference.batch_norm_gradient,
    reference.batch_norm_scale_gradient,
    reference.unscale_columns,
    reference.scale_gradient,
    reference.softmax_gradient,
    definition.apply_program,
    definition.linear_epilogue,
)
# Where PyTorch dispatches a call with a tensor that is not dense.
_OTHER_KEYS = (
    "SparseCPU",
    "SparseCUDA",
    "SparseCsrCPU",
    "SparseCsrCUDA",
    "MkldnnCPU",
    "QuantizedCPU",
    "QuantizedCUDA",
    "NestedTensorCPU",
    "NestedTensorCUDA",
    "AutogradNestedTensor",
)

_load_error: str | None = None
# Registrations live as long as this object. FRAGMENT, because the C++ library may own the
# namespace, also one of which only a part was loaded.
_registrations = torch.library.Library(NAMESPACE, "FRAGMENT")


def is_loaded() -> bool:
    """Whether the compiled library was loaded, with every op that this package knows."""
    return _load_error is None


def load_error() -> str | None:
    """Why the library is not loaded; None if it is."""
    return _load_error


def read_build_info() -> dict | None:
    """What the loaded library says of its build; None if it is not loaded."""
    return json.loads(ops.build_info()) if is_loaded() else None


def read_link_info() -> dict | None:
    """With what programs are linked, and where that is kept; None if the library is not loaded."""
    return json.loads(ops.link_info()) if is_loaded() else None


def _explain_absence(path: pathlib.Path) -> str:
    """Of the package that was built for the CPU alone, perhaps for another installation: pip takes
    a wheel from its cache by where its sources came from, and by no variable."""
    try:
        version = importlib.metadata.version("cutlass_fused")
    except importlib.metadata.PackageNotFoundError:
        return ""
    if not version.endswith("+cpu") or path.parent != _FOLDER:
        return ""
    return (
        f": cutlass_fused {version} was built with CUTLASS_FUSED_SKIP_KERNELS=1; install it "
        "without this variable, by pip install --force-reinstall --no-deps --no-cache-dir"
    )


def _load(path: pathlib.Path) -> str | None:
    """Load the library; returns the reason if that fails."""
    if not path.is_file():
        return f"there is no file {path}{_explain_absence(path)}"
    try:
        torch.ops.load_library(path)
    except Exception as error:  # an import works whatever is wrong with the library
        return f"{path} cannot be loaded: {error.__cause__ or error}"
    return None


def _read_schemas() -> dict[str, str]:
    """The lines of schemas.txt by op name, and those of descriptions that it lacks."""
    lines = (_FOLDER / "schemas.txt").read_text(encoding="utf-8").splitlines()
    schemas = [line for line in lines if line.strip() and not line.startswith("#")]
    schemas = {schema.partition("(")[0]: schema for schema in schemas}
    described = {op: make_schema(each) for op, each in (EPILOGUES | ROW_OPS).items()}
    return described | schemas


def _define_missing() -> list[str]:
    """Define what the library did not, by name: a second definition would be an error."""
    missing = []
    for name, schema in _read_schemas().items():
        if not hasattr(ops, name):
            _registrations.define(schema)
            missing.append(name)
    return missing


def _raise_not_loaded(name: str):
    shown = checks.name_in_messages(name)

    def kernel(*args, **kwargs):
        raise RuntimeError(f"{shown}: the compiled library must be loaded, got: {_load_error}")

    return kernel


def _register_missing_kernels() -> None:
    tensor_ops = {op.__name__ for op in _TENSOR_OPS}
    for name in _read_schemas():
        # An op without a tensor argument is dispatched to no device.
        key = "CUDA" if name in tensor_ops else "CompositeExplicitAutograd"
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"{NAMESPACE}::{name}", key):
            _registrations.impl(name, _raise_not_loaded(name), key)


def _make_refusal(op):
    """For tensors that are not dense, in place of PyTorch's list of all that it knows instead."""
    arguments = getattr(ops, op.__name__).default._schema.arguments
    names, op = [argument.name for argument in arguments], checks.name_in_messages(op.__name__)

    def kernel(*args, **kwargs):
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            parts = value if isinstance(value, (list, tuple)) else [value]
            for i, each in enumerate(parts):
                if isinstance(each, torch.Tensor) and not checks.is_dense(each):
                    checks.refuse_kind(op, f"{name}[{i}]" if each is not value else name, each)
        raise RuntimeError(f"{op}: all tensors must be dense, got others")

    return kernel


def _make_cpu_kernel(op):
    @functools.wraps(op)
    def kernel(*args, **kwargs):
        # It runs as a CUDA kernel does: nothing inside an op is recorded for a backward pass, and
        # autocast does not reach it. The functionals see to both.
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            return op(*args, **kwargs)

    return kernel


def _make_fake(op):
    if op is reference.split_weight:
        return _fake_split_weight
    name = checks.name_in_messages(op.__name__)

    @functools.wraps(op)
    def fake(x, *args, **kwargs):
        if x.device.type == "cuda":
            checks.check_x_dtype(name, x, checks.KERNEL_DTYPES)
        with torch.no_grad():
            return op(x, *args, **kwargs)

    return fake


def _fake_split_weight(weight, precision="ieee"):
    split = reference.split_weight(weight, precision)
    # Those on a GPU have a size, which the CPU's definition does not tell.
    return split if split.is_cpu else split.new_empty(torch.library.get_ctx().new_dynamic_size())


def _register_reference() -> None:
    for op in _TENSOR_OPS:
        _registrations.impl(op.__name__, _make_cpu_kernel(op), "CPU")
        refuse = _make_refusal(op)
        for key in _OTHER_KEYS:
            _registrations.impl(op.__name__, refuse, key)
        torch.library.register_fake(
            f"{NAMESPACE}::{op.__name__}", _make_fake(op), lib=_registrations
        )


def _register_programs() -> None:
    """What the kernels' ops call where no kernel can be linked; without this package nothing is
    registered."""
    _registrations.impl("run_program", definition.run_program, "CompositeExplicitAutograd")


def list_tensor_ops() -> list[str]:
    """The names of all ops that compute a tensor."""
    return [op.__name__ for op in _TENSOR_OPS]


def define_beside(name: str, new: str, kernel) -> torch._ops.OpOverload:
    """An op with the schema and the fake of the op of this name, and one kernel for all devices."""
    op = getattr(ops, name).default
    _, _, arguments = str(op._schema).partition("(")
    _registrations.define(f"{new}({arguments}")
    _registrations.impl(new, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{new}", op, lib=_registrations)
    return getattr(ops, new).default


_load_error = _load(library_path())
_missing = _define_missing()
if _missing and _load_error is None:
    _load_error = f"{library_path()} was built from other sources: it lacks {', '.join(_missing)}"
_register_programs()
if _load_error is not None:
    _register_missing_kernels()
_register_reference()
