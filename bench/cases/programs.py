"""Twelve programs that multiply fp32 matrices by PyTorch, each as people write it."""

import functools
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

Run = Callable[[], Tensor]


class Place(NamedTuple):
    """Where a program runs, and in which dtype: float64 is its truth."""

    device: torch.device
    dtype: torch.dtype

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(shape).to(self.device, self.dtype)

    def put(self, *modules: nn.Module) -> nn.Module:
        return nn.Sequential(*modules).to(self.device, self.dtype)

    @property
    def is_exact(self) -> bool:
        return self.dtype == torch.float64


def join(*tensors: Tensor) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def build_potential(place: Place) -> Run:
    """An MLP potential: the energy, the forces, and the gradients of a loss of both."""
    model = place.put(
        nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1)
    )
    x = place.draw(256, 64).requires_grad_()
    weights = [p for p in model.parameters() if p.dim() == 2]

    def run() -> Tensor:
        energy = model(x).sum()
        (forces,) = torch.autograd.grad(energy, x, create_graph=True)
        gradients = torch.autograd.grad(energy.square() + forces.square().sum(), weights)
        return join(energy[None], forces, *gradients)

    return run


def build_pinn(place: Place) -> Run:
    """A physics-informed network: the gradients of the square of u_xx + u_yy."""
    model = place.put(
        nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1)
    )
    x = place.draw(512, 2).requires_grad_()
    weights = [p for p in model.parameters() if p.dim() == 2]

    def run() -> Tensor:
        (first,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        second = [
            torch.autograd.grad(first[:, i].sum(), x, create_graph=True)[0][:, i] for i in (0, 1)
        ]
        return join(*torch.autograd.grad(sum(second).square().mean(), weights))

    return run


def build_operator(place: Place) -> Run:
    """A layer of a Fourier neural operator: complex products of modes beside a Linear."""
    linear, x = place.put(nn.Linear(64, 64)), place.draw(8, 256, 64)
    modes = torch.complex(place.draw(32, 64, 64), place.draw(32, 64, 64)) / 64

    def run() -> Tensor:
        spectrum = torch.einsum("bmi,mio->bmo", torch.fft.rfft(x, dim=1)[:, :32], modes)
        return join(torch.fft.irfft(spectrum, n=256, dim=1) + linear(x))

    return run


def build_encoder(place: Place) -> Run:
    """A transformer encoder in eval mode: PyTorch's fast path. ReLU, as its gelu is another."""
    layer = nn.TransformerEncoderLayer(128, 4, 256, 0.0, batch_first=True)
    model = place.put(nn.TransformerEncoder(layer, 2)).eval()
    x = place.draw(4, 100, 128)

    def run() -> Tensor:
        with torch.inference_mode():
            return model(x).clone()

    return run


def build_attention(place: Place) -> Run:
    """Training of a MultiheadAttention that returns its weights."""
    model = nn.MultiheadAttention(128, 4, batch_first=True).to(place.device, place.dtype)
    x = place.draw(4, 100, 128).requires_grad_()

    def run() -> Tensor:
        y, weights = model(x, x, x)
        return join(y, weights, *torch.autograd.grad(y.square().sum(), [x, *model.parameters()]))

    return run


def build_lstm(place: Place) -> Run:
    model = nn.LSTM(64, 128, 2).to(place.device, place.dtype)
    x = place.draw(20, 8, 64)
    return lambda: join(model(x)[0])


def build_einsum(place: Place) -> Run:
    """One product, one weight for a batch, a contraction of two dimensions, and a true batch."""
    x, y, w = place.draw(6, 80, 64), place.draw(6, 48, 64), place.draw(64, 96)
    t = place.draw(8, 64, 96)
    calls = [("bik,kj->bij", x, w), ("bik,bjk->bij", x, y), ("ik,kj->ij", x[0], w)]
    calls.append(("bik,aik->ba", t, t))
    return lambda: join(*(torch.einsum(*call) for call in calls))


def build_linalg(place: Place) -> Run:
    a = place.draw(96, 96) / 96 + 2 * torch.eye(96).to(place.device, place.dtype)
    b = place.draw(96, 32)

    def run() -> Tensor:
        positive = a @ a.T
        solved = torch.cholesky_solve(b, torch.linalg.cholesky(positive))
        power = torch.linalg.matrix_power(a / 2, 3)
        return join(torch.linalg.solve(a, b), solved, power, torch.linalg.multi_dot([a, a, b]))

    return run


def build_convolutions(place: Place) -> Run:
    """Convolutions of 1 x 1 over channels."""
    model = place.put(nn.Conv2d(64, 128, 1), nn.ReLU(), nn.Conv2d(128, 64, 1))
    x = place.draw(4, 64, 16, 16)
    return lambda: join(model(x))


def build_autocast(place: Place) -> Run:
    model, x = place.put(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)), place.draw(256, 64)

    def run() -> Tensor:
        enabled = not place.is_exact
        with torch.autocast(place.device.type, torch.bfloat16, enabled=enabled):
            return join(model(x).float() if enabled else model(x))

    return run


# The modes "default", "reduce-overhead" and "max-autotune". Of the templates that the last one
# compiles for every product two are enough here: all of them take minutes.
MODES = (
    {},
    {"triton.cudagraphs": True},
    {"triton.cudagraphs": True, "max_autotune": True, "test_configs.max_mm_configs": 2},
)


def build_compiled(place: Place) -> Run:
    """One MLP under three modes of torch.compile, forward and backward."""
    model, x = place.put(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)), place.draw(256, 64)
    models = [model] * 3
    if not place.is_exact:
        models = [torch.compile(model, options=options) for options in MODES]

    def run() -> Tensor:
        results = []
        for each in models:
            torch.compiler.cudagraph_mark_step_begin()
            y = each(x)
            gradients = torch.autograd.grad(y.square().sum(), model.parameters())
            # What a CUDA graph returns is overwritten by the next one.
            results.append(join(y, *gradients))
        return join(*results)

    return run


def build_package(place: Place) -> Run:
    """An exported program, called as it is and from a package of AOTInductor."""
    model, x = place.put(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)), place.draw(256, 64)
    if place.is_exact:
        return lambda: join(model(x), model(x))
    with torch.no_grad():
        exported = torch.export.export(model, (x,))

    @functools.cache
    def load():
        with tempfile.TemporaryDirectory() as folder:
            path = torch._inductor.aoti_compile_and_package(
                exported, package_path=f"{folder}/program.pt2"
            )
            return torch._inductor.aoti_load_package(path)

    @torch.no_grad()
    def run() -> Tensor:
        return join(exported.module()(x), load()(x))

    return run


PROGRAMS: dict[str, Callable[[Place], Run]] = {
    "MLP potential with forces": build_potential,
    "PINN, second derivatives": build_pinn,
    "neural operator": build_operator,
    "transformer encoder, eval": build_encoder,
    "MultiheadAttention, training": build_attention,
    "LSTM": build_lstm,
    "einsum": build_einsum,
    "linalg": build_linalg,
    "1 x 1 convolutions": build_convolutions,
    "autocast": build_autocast,
    "compile in three modes": build_compiled,
    "exported package": build_package,
}

# Those that compile for a minute.
COMPILED = ("compile in three modes", "exported package")
