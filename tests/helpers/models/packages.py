"""AOTInductor packages of all modules, one for each dtype, and what they are compared with."""

import copy
import dataclasses
import pathlib

import torch
from torch._inductor import aoti_compile_and_package, aoti_load_package

from cutlass_fused import nn

# On a GPU rows this long are split under "ieee" and "tf32", which then differ.
IN, OUT = 96, 136
# The rows of the export's call, and of one more, which finds what the first left in the buffers.
ROWS = (6, 33)


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    dtype: torch.dtype = torch.float32
    precision: str | None = None
    cast: torch.dtype | None = None  # of autocast
    grad: bool = False  # whether gradients are enabled in the export

    def __str__(self):
        return self.name


COMMON = (
    Case("float16", torch.float16),
    Case("bfloat16", torch.bfloat16),
    # In training the ops then also give what the backward pass would read.
    Case("float16_grad", torch.float16, grad=True),
    Case("autocast_float16", cast=torch.float16),
    Case("autocast_bfloat16", cast=torch.bfloat16),
)


class AllModules(torch.nn.Module):
    """One package: compiling it takes longer than all the rest."""

    def __init__(self, precision=None):
        super().__init__()
        options = {"precision": precision}
        self.evaluated = torch.nn.ModuleDict(
            {
                "linear": nn.Linear(IN, OUT, **options),
                "leaky_relu": nn.LinearScaleLeakyReLU(IN, OUT, 2.0, 0.1, **options),
                "scale_norm": nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,), **options),
                "norm_softmax": nn.LinearBatchNorm1dScaleSoftmax(IN, OUT, **options),
                "norm": nn.BatchNorm1d(IN),
                "softmax": nn.Softmax(-1),
            }
        )
        # Numbers that are not the defaults, which an exported call would leave out.
        self.trained = torch.nn.ModuleDict(
            {
                "scale_norm": nn.LinearScaleBatchNorm1d(IN, OUT, (OUT,), **options),
                "norm_softmax": nn.LinearBatchNorm1dScaleSoftmax(IN, OUT, 1e-3, 0.3, **options),
                "norm": nn.BatchNorm1d(IN, momentum=None),
            }
        )
        self.evaluated.eval()

    def forward(self, x):
        modes = {"eval": self.evaluated, "train": self.trained}
        return {f"{key} {name}": part(x) for key in modes for name, part in modes[key].items()}


class UnderAutocast(torch.nn.Module):
    """16-bit products beside fp32 scales: the results are wider than what the ops are given."""

    def __init__(self, model, device, cast):
        super().__init__()
        self.model, self.device_type, self.cast = model, torch.device(device).type, cast

    def forward(self, x):
        with torch.autocast(self.device_type, dtype=self.cast):
            return self.model(x)


def make_model(case, device="cpu"):
    torch.manual_seed(0)
    model = AllModules(case.precision)
    for name, buffer in model.named_buffers():  # statistics that show
        if name.endswith(("running_mean", "running_var")):
            buffer.copy_(torch.rand(buffer.shape) + 0.5)
    model = model.to(device, case.dtype)
    return model if case.cast is None else UnderAutocast(model, device, case.cast)


def make_inputs(case, device="cpu"):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(rows, IN, generator=generator).to(device, case.dtype) for rows in ROWS]


def export(model, x, grad=False):
    batch = torch.export.Dim("batch", min=2, max=64)
    with torch.set_grad_enabled(grad):
        return torch.export.export(model, (x,), dynamic_shapes=({0: batch},))


def assert_close(name, ours, expected):
    """Also in the dtype."""
    torch.testing.assert_close(ours[name], expected[name], msg=lambda text: f"{name}: {text}")


@dataclasses.dataclass
class Package:
    """The .pt2 file of a model, and what the model itself gives: outputs and buffers."""

    path: pathlib.Path
    device: str
    inputs: list
    outputs: list  # a dict for each input
    state: dict  # of the model before the first call
    buffers: dict  # behind the last one

    def check(self, outputs, constants):
        for ours, expected in zip(outputs, self.outputs, strict=True):
            assert ours.keys() == expected.keys()
            for name in expected:
                assert_close(name, ours, expected)
        moved = [name for name, value in self.buffers.items() if (value != self.state[name]).any()]
        assert len(moved) == 9  # three in each module that is trained
        for name in moved:
            assert_close(name, constants, self.buffers)

    def run_in_python(self):
        loaded = aoti_load_package(str(self.path))
        # Tensors of ours, so that they can be looked at.
        names = set(loaded.get_constant_fqns())  # without those that the code holds as numbers
        constants = {name: value.clone() for name, value in self.state.items() if name in names}
        loaded.load_constants(constants, check_full_update=False, user_managed=True)
        return [loaded(x) for x in self.inputs], constants


def make_package(case, folder, device="cpu", change=lambda model: model):
    """`change` is done to the model that is exported, not to the one that it is held against."""
    model, inputs = make_model(case, device), make_inputs(case, device)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    program = export(change(copy.deepcopy(model)), inputs[0], case.grad)
    path = aoti_compile_and_package(program, package_path=str(folder / f"{case}.pt2"))
    outputs = []
    for x in inputs:
        with torch.set_grad_enabled(case.grad):
            outputs.append({name: y.detach() for name, y in model(x).items()})
    return Package(path, device, inputs, outputs, state, dict(model.named_buffers()))
