"""The switch itself: its words, what is restored, who sees it, and that off means nothing."""

import functools
import threading

import numpy
import pytest
import torch
from python_process import run_python
from switched import assert_off, count_under, install_on_cpu, outcomes

import cutlass_fused
from cutlass_fused import fp32_matmul, set_fp32_matmul
from cutlass_fused.matmul import _state, _switch
from cutlass_fused.matmul._left import keeps_to
from cutlass_fused.precision import resolve_precision


@pytest.fixture(autouse=True)
def off():
    yield
    set_fp32_matmul(None)


def test_words():
    for word in ("ieee", "tf32"):
        set_fp32_matmul(word)
        assert _state.word == word
    for word in ("off", None):
        set_fp32_matmul("ieee")
        set_fp32_matmul(word)
        assert _state.word is None


# Arrays compare by element: one of a word is equal to it, one of two is neither equal nor not.
ARRAYS = [numpy.array(words) for words in (["ieee"], ["off"], ["ieee", "tf32"])]


@pytest.mark.parametrize("word", ["highest", "IEEE", "", 1, True, ["ieee"], *ARRAYS])
def test_other_words_are_refused(word):
    for switch in (set_fp32_matmul, fp32_matmul):
        with pytest.raises(ValueError, match="word must be 'ieee', 'tf32', 'off' or None, got"):
            switch(word)
    assert_off()


def test_nested():
    with fp32_matmul("ieee"):
        with fp32_matmul("tf32"):
            with fp32_matmul("off"):
                assert _state.word is None
            assert _state.word == "tf32"
        assert _state.word == "ieee"
    assert_off()


def test_with_restores_what_was_set_before_not_what_is_set_within():
    set_fp32_matmul("tf32")
    with fp32_matmul("ieee"):
        set_fp32_matmul(None)
    assert _state.word == "tf32"


def test_exception():
    with pytest.raises(KeyError), fp32_matmul("tf32"), fp32_matmul("ieee"):
        raise KeyError
    assert_off()


def test_one_context_entered_twice():
    context = fp32_matmul("ieee")
    with context, fp32_matmul("tf32"), context:
        assert _state.word == "ieee"
    assert_off()
    with context:
        assert _state.word == "ieee"


def test_kernels_that_cannot_be_put_there(monkeypatch):
    """Nothing is on then, and nothing is left open."""

    def fail():
        raise RuntimeError("no kernels")

    monkeypatch.setattr(_switch, "install", fail)
    context = fp32_matmul("ieee")
    for turn_on in (context.__enter__, lambda: set_fp32_matmul("ieee")):
        with pytest.raises(RuntimeError, match="no kernels"):
            turn_on()
        assert_off()
    with pytest.raises(RuntimeError, match="not entered as often"):
        context.__exit__(None, None, None)
    with fp32_matmul("off"):
        assert_off()
    assert_off()


def test_left_without_being_entered():
    with pytest.raises(RuntimeError, match="not entered as often as it is left"):
        fp32_matmul("ieee").__exit__(None, None, None)


def test_threads_that_leave_in_the_order_in_which_they_entered():
    """What the first one found is back when both have left, and the second keeps its word."""
    entered, left = threading.Event(), threading.Event()

    def enter_second():
        with fp32_matmul("ieee"):
            entered.set()
            left.wait(timeout=30)
            words.append(_state.word)

    words = []
    thread = threading.Thread(target=enter_second)
    with fp32_matmul("tf32"):
        thread.start()
        assert entered.wait(timeout=30)
        words.append(_state.word)
    words.append(_state.word)
    left.set()
    thread.join()
    assert words == ["ieee", "ieee", "ieee"]
    assert_off()


def test_setting_while_another_thread_has_one_open():
    with fp32_matmul("ieee"):
        thread = threading.Thread(target=set_fp32_matmul, args=("tf32",))
        thread.start()
        thread.join()
        assert _state.word == "tf32"
    assert_off()


def test_what_runs_behind_the_call_is_not_decorated():
    def generate():
        yield

    async def wait():
        pass

    async def generate_later():
        yield

    for function in (generate, wait, generate_later):
        with pytest.raises(TypeError, match=f"generator or a coroutine, .*{function.__name__}"):
            fp32_matmul("ieee")(function)


def test_decorator():
    @fp32_matmul("tf32")
    def read():
        return _state.word

    assert read() == "tf32"
    assert_off()


def test_it_holds_in_other_threads():
    words = []
    with fp32_matmul("ieee"):
        thread = threading.Thread(target=lambda: words.append(_state.word))
        thread.start()
        thread.join()
    assert words == ["ieee"]


def test_backward_behind_the_with_is_outside():
    # K = 64 and 48: beyond what is left for being short, in the forward and the backward pass.
    x, layer = torch.rand(48, 64, requires_grad=True), torch.nn.Linear(64, 40)
    with count_under() as report:
        inside = layer(x).sum()
    with cutlass_fused.matmul_report() as behind:
        inside.backward()
    assert outcomes(report) == {"served"}
    assert outcomes(behind) == {"the switch is off"}


# Values that PyTorch gives and this package does not know are fp32 proper.
@pytest.mark.parametrize("word", ["bfx9", "none", "ieee", "bf16", None])
def test_unknown_settings_of_pytorch_are_ieee(word, monkeypatch):
    monkeypatch.setattr("cutlass_fused.precision._read_matmul_setting", lambda: word)
    assert resolve_precision(None, "linear") == "ieee"
    assert keeps_to("ieee") and keeps_to("tf32")


def test_the_generic_setting_of_pytorch_counts():
    torch.backends.fp32_precision = "tf32"
    assert resolve_precision(None, "linear") == "tf32"
    assert not keeps_to("ieee") and keeps_to("tf32")
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    assert resolve_precision(None, "linear") == "ieee"
    torch.backends.cuda.matmul.fp32_precision = "none"
    torch.backends.fp32_precision = "none"
    assert resolve_precision(None, "linear") == "ieee"


def test_off_by_default_nothing_is_installed_nor_imported():
    code = (
        "import sys, torch; before = str(torch.library.get_kernel('aten::mm', 'CUDA'))\n"
        "import cutlass_fused; from cutlass_fused.matmul import _install\n"
        "assert not _install._libraries\n"
        "assert str(torch.library.get_kernel('aten::mm', 'CUDA')) == before\n"
        "cutlass_fused.set_fp32_matmul('ieee')\n"
        "assert str(torch.library.get_kernel('aten::mm', 'CUDA')) != before\n"
        "assert not {'torch._dynamo', 'torch._inductor'} & sys.modules.keys()\n"
    )
    run_python(code)


@pytest.mark.parametrize(
    "value, word", [("ieee", "ieee"), ("tf32", "tf32"), ("off", None), ("", None)]
)
def test_environment_variable(value, word):
    code = f"from cutlass_fused.matmul import _state; assert _state.word == {word!r}"
    run_python(code, CUTLASS_FUSED_FP32_MATMUL=value)


def test_environment_variable_of_another_word():
    with pytest.raises(AssertionError, match="CUTLASS_FUSED_FP32_MATMUL: fp32_matmul: word must"):
        run_python("import cutlass_fused", CUTLASS_FUSED_FP32_MATMUL="high")


def test_install_warns_of_nothing(recwarn):
    install_on_cpu()
    set_fp32_matmul("ieee")
    assert not recwarn.list


def test_a_partial_generator_is_refused_too():
    def compute():
        yield

    with pytest.raises(TypeError, match="generator or a coroutine, .*compute"):
        cutlass_fused.fp32_matmul("ieee")(functools.partial(compute))
