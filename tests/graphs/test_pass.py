"""When a pass of ours is there, beside one of the user's, and what it leaves behind."""

import collections
import pickle
import shutil
import types
from threading import Event, Thread
from unittest import mock

import pytest
import torch
from switched import count_under, outcomes
from torch._dynamo.utils import counters
from torch._inductor import compile_fx, config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.utils import fresh_cache
from torch._inductor.virtualized import V

import cutlass_fused
from cutlass_fused import fp32_matmul, graphs
from cutlass_fused.graphs import Change, Compilation, _kept, _pass, _products
from cutlass_fused.graphs._pass import Pass
from cutlass_fused.matmul import _compile
from cutlass_fused.matmul._left import OFF
from cutlass_fused.matmul._report import COMPILED, SERVED

M, N, K = 40, 48, 64
ATEN = {
    "max_autotune_gemm_backends": "ATEN"
}  # no templates where the switch is off: they take long
TUNED = {"max_autotune_gemm": True, **ATEN}
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a host compiler")


def multiply(a, b):
    return a @ b


def operands():
    return torch.randn(M, K), torch.randn(K, N)


def count_compiled(report):
    """Products by op. On a CPU an op of ours calls PyTorch's, which another test may have had
    served, or left with the switch off, for the rest of the process."""
    count = collections.Counter()
    for (op, _, outcome), number in report.rows.items():
        assert outcome in (COMPILED, SERVED, OFF)
        count[op] += number if outcome == COMPILED else 0
    return +count


class UsersPass(CustomGraphPass):
    """Notes which ops it saw, and what stood in the settings."""

    def __init__(self, uuid="mine"):
        self.seen, self.settings, self._uuid = [], [], uuid

    def __call__(self, graph):
        ops = (n.target for n in graph.nodes if n.op == "call_function")
        self.seen += [op._schema.name for op in ops]
        self.settings.append(config.post_grad_custom_pre_pass)

    def uuid(self):
        return self._uuid


# ---- when it is there ----

PLAIN = Compilation(False, False, False, False)


@pytest.mark.parametrize("word", [None, "ieee"])
@pytest.mark.parametrize("skips", [False, True])
def test_products_are_replaced_where_they_would_arrive_nowhere(word, skips):
    traced = torch.fx.symbolic_trace(lambda x: x + 1)
    change = _products.find_change(traced, PLAIN._replace(skips_dispatcher=skips, word=word))
    assert (change is not None) == (skips and word is not None)


@pytest.mark.parametrize("setting", ["cpp_wrapper", "max_autotune", "max_autotune_gemm"])
def test_settings_with_which_products_arrive_nowhere(setting):
    settings = {"cpp_wrapper": False, "max_autotune": False, "max_autotune_gemm": False}
    for chosen in (False, True):
        with config.patch(settings | {setting: chosen}):
            assert graphs._describe(compile_fx, {}).skips_dispatcher == chosen


@pytest.mark.parametrize(
    "field, value",
    [("is_inference", False), ("is_package", True), ("has_cuda_graphs", True), (None, None)],
)
def test_splits_are_kept_in_inference_alone(field, value):
    traced = torch.fx.symbolic_trace(torch.nn.Identity())
    with traced.graph.inserting_before():
        traced.graph.call_function(torch.ops.cutlass_fused.linear.default)
    compilation = PLAIN._replace(is_inference=True)
    if field is not None:
        compilation = compilation._replace(**{field: value})
    assert (_kept.find_change(traced, compilation) is None) == (field is not None)


def test_a_graph_without_our_ops_is_compiled_as_if_this_were_not_there():
    users = UsersPass()
    with config.patch(post_grad_custom_pre_pass=users), torch.no_grad():
        torch.compile(multiply)(*operands())
        with fp32_matmul("ieee"):
            x = operands()[0].requires_grad_()
            with torch.enable_grad():
                torch.compile(multiply)(x, operands()[1])
        torch.compile(multiply, options=TUNED)(*operands())
    assert users.settings == [users] * 3


@pytest.mark.parametrize("options", [TUNED, {"max_autotune": True, **ATEN}], ids=str)
def test_compiled(options, on_cpu):
    a, b = operands()
    compiled = torch.compile(multiply, options=options)
    with count_under() as report, torch.profiler.profile() as profile:
        y = compiled(a, b)
    torch.testing.assert_close(y, a @ b)
    assert count_compiled(report) == {"mm": 1}
    assert "cutlass_fused::linear" in {event.name for event in profile.events()}
    # With the switch off it is another graph.
    with torch.profiler.profile() as profile:
        torch.testing.assert_close(compiled(a, b), a @ b)
    assert not any("cutlass" in event.name for event in profile.events())


def test_training(on_cpu):
    """Forward and backward in the `with`."""
    a, b = (x.requires_grad_() for x in operands())
    with count_under() as report:
        y = torch.compile(multiply, options=TUNED)(a, b)
        grads = torch.autograd.grad(y.square().sum(), (a, b))
    torch.testing.assert_close(grads, torch.autograd.grad((a @ b).square().sum(), (a, b)))
    assert count_compiled(report) == {"mm": 3}


@pytest.mark.parametrize("forward, backward", [("ieee", None), (None, "ieee"), ("tf32", "ieee")])
def test_a_backward_pass_holds_what_its_forward_pass_does(forward, backward, on_cpu, monkeypatch):
    """PyTorch's cache on disk has both under the key of the forward pass, wherever the other was
    called first."""
    words, replace = [], _products.replace_products
    monkeypatch.setattr(
        _products,
        "replace_products",
        lambda graph, word: words.append(word) or replace(graph, word),
    )
    a, b = (x.requires_grad_() for x in operands())
    with fp32_matmul(forward):
        y = torch.compile(multiply, options=TUNED)(a, b)
    with count_under(backward) as report:
        grads = torch.autograd.grad(y.square().sum(), (a, b))
    torch.testing.assert_close(grads, torch.autograd.grad((a @ b).square().sum(), (a, b)))
    assert words == ([] if forward is None else [forward] * 2)
    assert count_compiled(report) == ({} if forward is None else {"mm": 2})


@needs_compiler
def test_a_package(on_cpu, tmp_path):
    """It holds the ops themselves: no kernel in Python, and no switch."""
    model, x = torch.nn.Linear(K, N), torch.randn(M, K)
    with count_under() as report, torch.no_grad():
        program = torch.export.export(model, (x,))
        path = torch._inductor.aoti_compile_and_package(program, package_path=f"{tmp_path}/p.pt2")
    assert count_compiled(report) == {"addmm": 1}
    with torch.profiler.profile() as profile, torch.no_grad():
        y = torch._inductor.aoti_load_package(path)(x)
        torch.testing.assert_close(y, model(x))
    ours = {event.name for event in profile.events() if "cutlass" in event.name}
    assert ours == {"cutlass_fused::linear"}


# ---- beside a pass of the user's ----


@pytest.mark.parametrize("how", ["settings", "options"])
def test_the_users_pass_comes_first(how, on_cpu):
    users, (a, b) = UsersPass(), operands()
    pair = {"post_grad_custom_pre_pass": users}
    with config.patch(pair if how == "settings" else {}), count_under() as report:
        options = TUNED | (pair if how == "options" else {})
        torch.compile(multiply, options=options)(a, b)
    assert users.seen == ["aten::mm"] and count_compiled(report) == {"mm": 1}
    (within,) = users.settings
    assert isinstance(within, Pass) and within.users is users
    assert config.post_grad_custom_pre_pass is None


class Insert(UsersPass):
    """Puts an op before each product, of which nothing is said."""

    def __init__(self, op):
        super().__init__()
        self.op = op

    def __call__(self, graph):
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default):
            with graph.inserting_before(node):
                node.replace_input_with(node.args[0], graph.call_function(self.op, node.args[:1]))


@needs_compiler
def test_an_op_that_the_users_pass_puts_before_a_product(on_cpu):
    a, b = operands()
    with config.patch(post_grad_custom_pre_pass=Insert(torch.ops.aten.relu.default)):
        with count_under() as report:
            y = torch.compile(multiply, options=TUNED)(a, b)
    torch.testing.assert_close(y, a.relu() @ b)
    assert count_compiled(report) == {"mm": 1}


def test_settings_are_restored_behind_an_exception(on_cpu):
    def fail(graph):
        raise ZeroDivisionError("the user's")

    with config.patch(post_grad_custom_pre_pass=fail), fp32_matmul("ieee"):
        with pytest.raises(Exception, match="the user's"):
            torch.compile(multiply, options=TUNED)(*operands())
        assert config.post_grad_custom_pre_pass is fail
    assert config.post_grad_custom_pre_pass is None


def test_nested_switches(on_cpu):
    a, b = operands()
    with fp32_matmul("ieee"), fp32_matmul(None), count_under("tf32") as report:
        torch.compile(multiply, options=TUNED)(a, b)
        assert config.post_grad_custom_pre_pass is None
    with fp32_matmul("ieee"), fp32_matmul(None), cutlass_fused.matmul_report() as off:
        torch.compile(multiply, options=TUNED)(a, b)
    assert COMPILED not in outcomes(off)
    assert count_compiled(report) == {"mm": 1}


# ---- beside other threads ----


def make_inductor(compile_graph):
    """A module like Inductor's, whose graphs compile_graph(graph) compiles."""

    def compile_inner(graph, **options):
        return compile_graph(graph)

    inductor = types.SimpleNamespace(_compile_fx_inner=compile_inner, config=config, V=V)
    graphs._extend(inductor)
    return lambda graph: inductor._compile_fx_inner(graph)


def changing(monkeypatch):
    """Changes for all graphs but "plain"; returns what they are applied to."""
    applied = []
    change = Change("a", applied.append)
    monkeypatch.setattr(graphs, "find_changes", lambda g, _: [] if g == "plain" else [change])
    return applied


def run_pass(graph):
    if (found := config.post_grad_custom_pre_pass) is not None:
        found(graph)
    return found


def test_a_graph_within_another_has_none_of_its_changes(monkeypatch):
    applied, users = changing(monkeypatch), UsersPass()

    def compile_graph(graph):
        if graph == "outer":
            assert compile_in("plain") is users
        return run_pass(graph) if graph == "outer" else config.post_grad_custom_pre_pass

    compile_in = make_inductor(compile_graph)
    monkeypatch.setattr(UsersPass, "__call__", lambda self, graph: None)
    monkeypatch.setattr(_pass, "FakeTensorUpdater", mock.Mock())
    with config.patch(post_grad_custom_pre_pass=users):
        compile_in("outer")
        assert config.post_grad_custom_pre_pass is users
    assert applied == ["outer"]


@pytest.mark.parametrize("second", ["plain", "changed"])
def test_graphs_of_two_threads_wait_for_each_other(second, monkeypatch):
    """As a package beside torch.compile: the settings are of both."""
    applied, within, begun, release = changing(monkeypatch), [], *(Event() for _ in "12")

    def compile_graph(graph):
        if graph == "first":
            begun.set()
            release.wait(1)  # while the other one, not made to wait, would be through
        run_pass(graph)
        within.append(graph)
        if graph != "first":
            release.set()

    compile_in = make_inductor(compile_graph)
    threads = [Thread(target=compile_in, args=(graph,)) for graph in ("first", second)]
    threads[0].start()
    begun.wait(9)
    threads[1].start()
    for thread in threads:
        thread.join(9)
    assert within == ["first", second]
    assert applied == ["first", second] if second == "changed" else ["first"]
    assert config.post_grad_custom_pre_pass is None


def test_what_another_thread_sees_and_what_is_left_behind_changes_nothing(monkeypatch):
    """Inductor's settings may be patched by the user beside us, in any order."""
    applied = []
    ours = Pass([Change("a", applied.append)], None)
    with ours.stand(config):
        other = Thread(target=ours, args=("another's",))
        other.start()
        other.join()
        ours("ours")
    ours("behind")
    assert applied == ["ours"]
    changing(monkeypatch)
    with config.patch(post_grad_custom_pre_pass=ours):
        assert make_inductor(run_pass)("plain") is None


# ---- keys of caches ----


def find_uuid(word, users=None):
    compilation = PLAIN._replace(skips_dispatcher=True, word=word)
    changes = graphs.find_changes(torch.fx.symbolic_trace(lambda x: x + 1), compilation)
    return Pass(changes, users).uuid()


def test_uuid():
    uuids = [find_uuid(word, users) for word in ("ieee", "tf32") for users in (None, UsersPass())]
    assert len(set(uuids)) == 4
    assert find_uuid("ieee") == uuids[0] == pickle.loads(pickle.dumps(uuids[0]))
    assert find_uuid("ieee", UsersPass("another")) not in uuids
    assert Pass([Change("a", None)], None).uuid() != Pass([Change("b", None)], None).uuid()


@pytest.mark.parametrize("users", [lambda graph: None, UsersPass(None)], ids=["function", "None"])
def test_nothing_is_cached_that_the_user_cannot_tell_apart(users):
    assert find_uuid("ieee", users) is None


def test_a_pass_within_another_has_the_users_alone():
    users = UsersPass()
    assert Pass([], Pass([Change("a", None)], users)).users is users


def test_caches_tell_words_apart(on_cpu):
    a, b = operands()
    counts = []
    with config.patch(force_disable_caches=False), fresh_cache():
        for word in ("ieee", "tf32", "ieee"):
            torch._dynamo.reset()
            counters.clear()
            with fp32_matmul(word), torch.profiler.profile() as profile:
                y = torch.compile(multiply, options=TUNED)(a, b)
            torch.testing.assert_close(y, a @ b)
            assert any(event.name == "cutlass_fused::linear" for event in profile.events())
            hit = counters["inductor"]["fxgraph_cache_hit"]
            counts.append(hit + counters["aot_autograd"]["autograd_cache_hit"] > 0)
    assert counts == [False, False, True]


@pytest.mark.parametrize("word", [None, "ieee"])
def test_caches_tell_versions_of_this_package_apart(word, on_cpu, monkeypatch):
    """Graphs hold what it puts there: AOTAutograd's cache asks no pass."""
    a, b = operands()
    misses = []
    with config.patch(force_disable_caches=False), fresh_cache(), fp32_matmul(word):
        for version in ("one", "two", "one"):
            torch._dynamo.reset()
            counters.clear()
            monkeypatch.setattr(_compile, "hash_package", lambda version=version: version)
            torch.compile(multiply, options=TUNED)(a, b)
            misses.append(counters["aot_autograd"]["autograd_cache_miss"])
    assert misses == [1, 1, 0]
