"""The pass within Inductor: how a user asks for it, and what PyTorch keeps of what it made."""

import shutil

import pytest
import torch
from fused_graphs import compare
from tails import WHOLE, K, M, N, Tail
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.utils import fresh_cache
from torch.nn import functional as F

import cutlass_fused
from cutlass_fused.graphs.epilogues import _backend, _pass
from cutlass_fused.graphs.epilogues._pass import EpiloguePass

pytestmark = pytest.mark.usefixtures("fused_on_cpu")
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a host compiler")
SETTING = "post_grad_custom_pre_pass"


def gelu(**options):
    return Tail(F.gelu).requires_grad_(options.get("train", False))


def list_called(function, *inputs):
    """Ops of ours that a call runs, by name, with how often."""
    with torch.profiler.profile() as profile, torch.no_grad():
        function(*inputs)
    names = [e.name.partition("::")[2] for e in profile.events() if "cutlass_fused" in e.name]
    return {name: names.count(name) for name in names}


ONE = {"linear_epilogue_kept": 1, "linear_epilogue": 1}


@needs_compiler
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", ["gelu", "softplus", "columns", "residual", "layer norm"])
def test_the_backend(name, train):
    function, shapes, _ = WHOLE[name]
    model = Tail(function, *shapes).requires_grad_(train)
    compiled = torch.compile(model, backend="cutlass_fused", fullgraph=True)
    compare(compiled, model, torch.randn(M, K), train=train)
    if not train:
        assert list_called(compiled, torch.randn(M, K)) == ONE


@needs_compiler
@pytest.mark.parametrize("mode", [None, "reduce-overhead", "max-autotune-no-cudagraphs"])
def test_options(mode):
    model, x = gelu(), torch.randn(M, K)
    options = cutlass_fused.inductor_options(mode=mode)
    with config.patch(max_autotune_gemm_backends="ATEN"):
        compiled = torch.compile(model, fullgraph=True, options=options)
        compare(compiled, model, x)
        assert list_called(compiled, x)["linear_epilogue"] == 1
    assert options.get("triton.cudagraphs", False) == (mode == "reduce-overhead")
    assert getattr(config, SETTING) is None


@needs_compiler
def test_options_of_the_backend():
    model, x = gelu(), torch.randn(M, K)
    options = {"precision": "tf32", "max_autotune": False}
    compiled = torch.compile(model, backend="cutlass_fused", options=options)
    seen = []
    real = EpiloguePass.__call__

    def note(self, graph):
        real(self, graph)
        calls = (node for node in graph.nodes if "linear_epilogue" in str(node.target))
        seen.extend(node.args[4] for node in calls if len(node.args) > 4)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpiloguePass, "__call__", note)
        compare(compiled, model, x)
    assert seen == ["tf32"]
    assert options == {"precision": "tf32", "max_autotune": False}


def test_words_that_are_none():
    with pytest.raises(ValueError, match="precision must be 'ieee', 'tf32' or None"):
        cutlass_fused.inductor_options(precision="fp8")
    with pytest.raises(RuntimeError, match="Unrecognized mode=fast"):
        cutlass_fused.inductor_options(mode="fast")


def test_the_backend_is_known():
    assert "cutlass_fused" in torch._dynamo.list_backends()
    assert torch._dynamo.lookup_backend("cutlass_fused") is _backend.compile_graph


@needs_compiler
def test_dynamic_batches():
    """One graph for all sizes, with leading dimensions too."""
    model = Tail(lambda z, r: F.gelu(z * r).softmax(-1), (N,)).requires_grad_(False)
    compiled = torch.compile(model, backend="cutlass_fused", dynamic=True, fullgraph=True)
    for shapes in ([(7, K), (64, K), (3, K)], [(2, 5, K), (4, 9, K)]):
        compare(compiled, model, torch.randn(shapes[0]))
        with torch.compiler.set_stance("fail_on_recompile"):
            for shape in shapes[1:]:
                compare(compiled, model, torch.randn(shape))
    assert list_called(compiled, torch.randn(11, K)) == ONE


@needs_compiler
def test_a_batch_that_grows_is_compiled_twice_at_most():
    model = gelu(train=True)
    compiled = torch.compile(model, backend="cutlass_fused")
    counters.clear()
    for rows in (8, 16, 24, 40):
        compare(compiled, model, torch.randn(rows, K), train=True)
    assert counters["stats"]["unique_graphs"] <= 2


@needs_compiler
def test_a_model_without_a_linear():
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU()).requires_grad_(False)
    compare(torch.compile(model, backend="cutlass_fused"), model, torch.randn(2, 3, 9))


# ---- a pass of the user's, and keys of caches ----


class UsersPass(CustomGraphPass):
    """Has 2 where a graph multiplies by 3."""

    def __init__(self, uuid="mine"):
        self.calls, self._uuid = 0, uuid

    def __call__(self, graph):
        self.calls += 1
        for node in graph.nodes:
            if node.target is torch.ops.aten.mul.Tensor and node.args[1] == 3.0:
                node.args = (node.args[0], 2.0)

    def uuid(self):
        return self._uuid


@needs_compiler
@pytest.mark.parametrize("where", ["options", "settings"])
def test_the_users_pass_runs_first(where):
    users, model = UsersPass(), Tail(lambda z: (z * 3.0).relu()).requires_grad_(False)
    if where == "options":
        options = cutlass_fused.inductor_options({SETTING: users})
    else:
        with config.patch({SETTING: users}):
            options = cutlass_fused.inductor_options()
    compiled, x = torch.compile(model, options=options), torch.randn(M, K)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), (model.linear(x) * 2.0).relu())
    assert users.calls == 1 and list_called(compiled, x) == ONE


def test_our_pass_is_no_users_pass():
    options = cutlass_fused.inductor_options(cutlass_fused.inductor_options(precision="tf32"))
    assert options[SETTING].users is None and options[SETTING].precision is None


def test_uuids():
    def find(precision=None, users=None, word=None):
        with cutlass_fused.fp32_matmul(word):
            return EpiloguePass(precision, users).uuid()

    different = [
        find("ieee"),
        find("tf32"),
        find("ieee", word="tf32"),
        find("ieee", UsersPass()),
        find("ieee", UsersPass("another")),
    ]
    assert len(set(different)) == len(different)
    assert find("ieee") == find() == different[0] and find(word="tf32") != find()
    assert find(users=UsersPass(None)) is None and find(users=lambda graph: None) is None


def test_uuids_tell_libraries_apart(monkeypatch, tmp_path):
    """Also of one size and one build's description."""
    library, uuids = tmp_path / "libcutlass_fused.so", set()
    monkeypatch.setattr(_pass._library, "is_loaded", lambda: True)
    monkeypatch.setattr(_pass._library, "read_build_info", lambda: {"cuda": "13.0"})
    monkeypatch.setattr(_pass._library, "library_path", lambda: library)
    monkeypatch.setattr(_pass, "_hash_library", _pass._hash_library.__wrapped__)  # of no process
    for content in ("one", "two", "one"):
        library.write_text(content)
        uuids.add(EpiloguePass().uuid())
    assert len(uuids) == 2


@needs_compiler
def test_caches_tell_precisions_apart():
    model, x = gelu(), torch.randn(M, K)
    hits = []
    with config.patch(force_disable_caches=False), fresh_cache():
        for precision in ("ieee", "tf32", "ieee"):
            torch._dynamo.reset()
            counters.clear()
            options = {"precision": precision}
            compiled = torch.compile(model, backend="cutlass_fused", options=options)
            compare(compiled, model, x)
            hit = counters["inductor"]["fxgraph_cache_hit"]
            hits.append(hit + counters["aot_autograd"]["autograd_cache_hit"] > 0)
            assert list_called(compiled, x)["linear_epilogue"] == 1
    assert hits == [False, False, True]


# ---- models ----


@needs_compiler
def test_tied_weights_and_views():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(N, N), nn.Linear(N, N)
            self.second.weight = self.first.weight

        def forward(self, x):
            x = F.gelu(self.first(x[:, ::2]))
            return torch.tanh(self.second(x.t().contiguous().t())) @ self.first.weight.t()

    model = Model()
    compiled = torch.compile(model, backend="cutlass_fused", fullgraph=True)
    compare(compiled, model, torch.randn(M, 2 * N), train=True)


@needs_compiler
def test_what_a_model_writes_in_between():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(K, N)
            self.register_buffer("scale", torch.ones(N))

        def forward(self, x):
            z = self.linear(x)
            y = z * self.scale
            self.scale.mul_(2.0)
            return y.relu() + self.scale, (z * self.scale).tanh()

    models = [Model().requires_grad_(False) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    compiled, x = torch.compile(models[0], backend="cutlass_fused"), torch.randn(M, K)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), models[1](x))
    torch.testing.assert_close(models[0].scale, models[1].scale)


@needs_compiler
def test_a_network_in_training():
    torch.manual_seed(0)
    layers = [nn.Linear(K, N), nn.GELU(), nn.Linear(N, N), nn.LayerNorm(N), nn.SiLU()]
    model = nn.Sequential(*layers, nn.Linear(N, 16), nn.Softmax(-1))
    compiled = torch.compile(model, backend="cutlass_fused", fullgraph=True)
    compare(compiled, model, torch.randn(M, K), train=True)


@needs_compiler
def test_a_package(tmp_path):
    """It needs no pass, and nothing of Python, where it runs."""
    model, x = Tail(lambda z, r: F.silu(z) * r, (N,)).requires_grad_(False), torch.randn(M, K)
    with torch.no_grad():
        batch = torch.export.Dim("batch", min=2, max=1024)
        program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
        path = torch._inductor.aoti_compile_and_package(
            program,
            package_path=f"{tmp_path}/model.pt2",
            inductor_configs=cutlass_fused.inductor_options(),
        )
        loaded = torch._inductor.aoti_load_package(path)
        for rows in (M, 5):
            x = torch.randn(rows, K)
            torch.testing.assert_close(loaded(x), model(x))
    assert list_called(loaded, x) == {"linear_epilogue": 1}
