"""torch.compile: which word a graph was compiled under is part of its guards and cache keys."""

from types import SimpleNamespace

import pytest
import torch
from switched import count_under, outcomes
from torch._dynamo.testing import CompileCounterWithBackend

import cutlass_fused
from cutlass_fused import fp32_matmul
from cutlass_fused.matmul import _compile

M, N, K = 40, 48, 64


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def f(x, weight, bias):
    return torch.nn.functional.linear(x, weight, bias).relu() @ weight


def operands():
    return torch.randn(M, K), torch.randn(N, K), torch.randn(N)


WORDS = [None, "ieee", "tf32"]


@pytest.mark.parametrize("first", WORDS)
def test_each_word_is_compiled_once(first):
    counter, inputs = CompileCounterWithBackend("eager"), operands()
    compiled = torch.compile(f, backend=counter)
    with fp32_matmul(first):
        compiled(*inputs)
        compiled(*inputs)
    assert counter.frame_count == 1
    for word in [*WORDS, *WORDS]:
        with fp32_matmul(word):
            compiled(*inputs)
    assert counter.frame_count == 3


def test_the_reason_of_a_recompilation_is_told():
    inputs = operands()
    with fp32_matmul("ieee"):
        torch.compile(f, backend="eager")(*inputs)
    torch._dynamo.config.error_on_recompile = True
    try:
        with pytest.raises(torch._dynamo.exc.RecompileError, match="fp32_matmul is 'ieee'"):
            torch.compile(f, backend="eager")(*inputs)
    finally:
        torch._dynamo.config.error_on_recompile = False


@pytest.mark.parametrize("compiled_under, called_under", [("ieee", None), (None, "ieee")])
def test_compiled_under_one_called_under_the_other(compiled_under, called_under):
    inputs, compiled = operands(), torch.compile(f)
    for word in (compiled_under, called_under, compiled_under):
        with count_under(word) as report:
            y = compiled(*inputs)
        torch.testing.assert_close(y, f(*inputs))
        assert outcomes(report) == {"the switch is off" if word is None else "served"}
        # Inductor calls PyTorch's products with a tensor to write to.
        assert {op for op, *_ in report.rows} <= {"addmm.out", "mm.out", "addmm"}


def test_a_break_of_the_graph_leaves_the_kernels_untraced():
    """Behind it TorchDynamo looks at each Python function that runs, and would trace them."""
    model, x = torch.nn.Sequential(torch.nn.Linear(K, N), torch.nn.Linear(N, M)), torch.randn(M, K)

    def g(x):
        torch._dynamo.graph_break()
        with fp32_matmul("ieee"):
            y = model(x)
        return y + model(x)

    with cutlass_fused.matmul_report() as report:
        y = torch.compile(g, backend="eager")(x)
    torch.testing.assert_close(y, 2 * model(x))
    found = [outcome for *_, outcome in report.rows]
    assert sorted(found) == ["served", "served", "the switch is off", "the switch is off"]


def test_training():
    model, x = torch.nn.Sequential(torch.nn.Linear(K, N), torch.nn.Linear(N, M)), torch.randn(M, K)
    compiled = torch.compile(model)
    with count_under() as report:
        compiled(x).square().sum().backward()
    grads = [p.grad for p in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    torch.testing.assert_close(grads, [p.grad for p in model.parameters()])
    assert outcomes(report) == {"served"}
    # Two products forward, three backward.
    assert report.rows.total() == 5


def test_a_backward_pass_behind_the_with_is_outside():
    inputs = [x.requires_grad_() for x in operands()]
    with fp32_matmul("ieee"):
        y = torch.compile(f)(*inputs).sum()
    with cutlass_fused.matmul_report() as report:
        y.backward()
    assert outcomes(report) == {"the switch is off"}


def test_a_switch_within_breaks_the_graph_and_holds():
    def switched(x, weight, bias):
        before = x @ weight.T
        with fp32_matmul("ieee"):
            within = f(x, weight, bias)
        return before + before.sin(), within

    inputs = operands()
    with count_under(None) as report:
        y = torch.compile(switched)(*inputs)
    torch.testing.assert_close(y, switched(*inputs))
    assert {(op.partition(".")[0], outcome) for op, _, outcome in report.rows} == {
        ("mm", "the switch is off"),
        ("addmm", "served"),
        ("mm", "served"),
    }


def test_a_switch_within_a_full_graph_is_refused():
    def switched(x):
        with fp32_matmul("ieee"):
            return x @ x.T

    with pytest.raises(torch._dynamo.exc.Unsupported, match="must stand outside of what is comp"):
        torch.compile(switched, fullgraph=True)(torch.randn(M, K))


def test_a_call_of_the_switch_within_breaks_the_graph():
    def switched(x):
        cutlass_fused.set_fp32_matmul("ieee")
        y = x @ x.T
        cutlass_fused.set_fp32_matmul(None)
        return y + 1

    with count_under(None) as report:
        torch.compile(switched)(torch.randn(M, K))
    assert outcomes(report) == {"served"}


def test_a_cpp_wrapper_calls_what_is_under_the_kernels():
    """The limit that the documents tell of: its products never arrive."""
    inputs = operands()
    compiled = torch.compile(f, options={"cpp_wrapper": True})
    with fp32_matmul("ieee"):
        compiled(*inputs)
        with cutlass_fused.matmul_report() as report:
            compiled(*inputs)
    assert not report.rows


def test_cache_keys():
    """PyTorch's key of a compiled graph, as its cache on disk has it."""
    from torch._inductor.codecache import compiled_fx_graph_hash

    def key():
        graph = torch.fx.symbolic_trace(lambda x: x + 1)
        return compiled_fx_graph_hash(graph, [], {}, [])[0]

    keys = []
    for word in WORDS:
        with fp32_matmul(word):
            keys.append(key())
            assert key() == keys[-1]
    assert len(set(keys)) == 3 and key() == keys[0]


def test_the_users_tag_of_caches_stays():
    config = torch.compiler.config
    package = f"[cutlass_fused={_compile.hash_package()}]"
    with torch.compiler.config.patch(cache_key_tag="mine"):
        with fp32_matmul("ieee"):
            assert config.cache_key_tag == f"mine{package}[cutlass_fused.fp32_matmul=ieee]"
            with fp32_matmul("tf32"):
                assert config.cache_key_tag == f"mine{package}[cutlass_fused.fp32_matmul=tf32]"
        assert config.cache_key_tag == f"mine{package}"
        # One that is set later is marked when something is compiled.
        config.cache_key_tag = "new"
        torch.compile(f, backend="eager")(*operands())
        assert config.cache_key_tag == f"new{package}"
    assert _compile._MARK.sub("", config.cache_key_tag) == ""


def test_export_holds_no_switch():
    """An exported program calls PyTorch's products: the switch counts when it runs."""
    model, x = torch.nn.Linear(K, N), torch.randn(M, K)
    with fp32_matmul("ieee"):
        program = torch.export.export(model, (x,)).module()
    for word in WORDS:
        with count_under(word) as report:
            torch.testing.assert_close(program(x), model(x))
        assert outcomes(report) == {"the switch is off" if word is None else "served"}


@pytest.mark.parametrize("takes_stack", [True, False])
def test_guard_of_every_version(takes_stack):
    """torch 2.10 takes no stack, later ones must have it."""
    added = []

    def add_lambda_guard(check, parts, *stack):
        if len(stack) != takes_stack:
            raise TypeError("add_lambda_guard(): incompatible function arguments")
        added.append((check, *parts, *stack))

    root = SimpleNamespace(add_lambda_guard=add_lambda_guard)
    builder = SimpleNamespace(guard_manager=SimpleNamespace(root=root))
    _compile._create_guard("ieee", builder, SimpleNamespace(user_stack="stack"))
    ((check, *told),) = added
    assert told == ["cutlass_fused.fp32_matmul is 'ieee'", "stack"][: 1 + takes_stack]
    assert not check({})
    with cutlass_fused.fp32_matmul("ieee"):
        assert check({})
