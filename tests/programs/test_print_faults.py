"""The comparison of tests/programs/test_print.py finds what may be wrong with a printed word: it
rejects each of the faults that are planted in the source here."""

import pytest
from printed_programs import compile_printed, make_printer, write_text
from program_words import read_words
from word_functions import NUMBERS, find_faults, make_inputs, run_word

WORDS = read_words()
# Word, which of its NUMBERS, what is printed, and what a faulty table or prelude had instead.
FAULTS = [
    ("maximum", 0, "x != x ? x : y != y ? y : fmaxf(x, y)", "fmaxf(x, y)"),
    ("minimum", 0, "x != x ? x : y != y ? y : fminf(x, y)", "x < y ? x : y"),
    ("round", 0, "nearbyintf", "roundf"),
    ("trunc", 0, "truncf", "floorf"),
    ("relu", 0, "x < 0.0f ? 0.0f : x", "fmaxf(x, 0.0f)"),
    ("relu", 0, "x < 0.0f ? 0.0f : x", "x != x ? x : fmaxf(x, 0.0f)"),
    ("sign", 0, "float((0.0f < x) - (x < 0.0f))", "x < 0.0f ? -1.0f : 1.0f"),
    ("softplus", 0, "threshold, scaled, x, below", "threshold, scaled, below, below"),
    ("softplus", 1, "(expf(scaled)) / beta", "(expf(scaled))"),
    ("softplus", 1, "threshold, scaled, x", "threshold, x, x"),
    ("softplus", 0, "fmaf(lost, __int", "fmaf(0.0f, __int"),
    ("softplus", 0, "0.333332092f", "0.3333f"),
    ("softplus", 0, "__float_as_int(sum) - exponent", "__float_as_int(sum) + exponent"),
    ("softplus", 0, "x <= 3.40282347e38f ? log : x", "log"),
    ("gelu", 0, "0.70710678118654752f", "0.7071f"),
    ("gelu_tanh", 0, "0.79788456080286536f", "0.7979f"),
    ("gelu_tanh", 0, "0.044715f", "0.0447f"),
    ("gelu", 0, "x * 0.5f", "x"),
    ("leaky_relu", 0, "0x3c23d70a", "0x3c23d6e4"),
    ("leaky_relu", 2, "x > 0.0f ? x : __fmul_rn(x, slope)", "x > 0.0f ? x : 0.0f"),
    ("leaky_relu", 1, "x > 0.0f ? x : __fmul_rn(x, slope)", "fmaxf(x, x * slope)"),
    ("prelu", 0, "(acc, p0)", "(p0, acc)"),
    ("elu", 2, "x * input_scale", "x"),
    ("elu", 2, "alpha * scale", "alpha"),
    ("elu", 0, "expm1f(x * input_scale)", "(expf(x) - 1.0f)"),
    ("log_sigmoid", 0, "__fsub_rn(fminf(0.0f, x),", "__fsub_rn(0.0f * fminf(0.0f, x),"),
    ("log_sigmoid", 0, "expf(-fabsf(x))", "expf(-x)"),
    ("hardsigmoid", 0, "shifted < 0.0f ? 0.0f : shifted", "fmaxf(shifted, 0.0f)"),
    ("hardswish", 0, "1.0f / 6.0f", "0.1666f"),
    ("mish", 0, "__fadd_rn(power, 2.0f)", "__fadd_rn(power, 1.0f)"),
    ("mish", 0, "fminf(x, 20.0f)", "x"),
    ("remainder", 0, "is_across ? __fadd_rn(rest, y) : rest", "rest"),
    ("remainder", 0, "fmodf(x, y)", "x - y * floorf(x / y)"),
    ("clamp", 0, "high < above ? high : above", "low > high ? low : high < above ? high : above"),
    ("clamp", 0, "low != low || ", ""),
    ("clamp", 3, " || high != high", ""),
    ("hardtanh", 0, "x < low ? low : x", "fmaxf(x, low)"),
    ("hardtanh", 1, "x < low ? low : x", "x <= low ? low : x"),
    ("threshold", 0, "<=", "<"),
    ("threshold", 0, "acc <= __int_as_float(0x3f000000) ?", "!(acc > 0.5f) ?"),
    ("pow", 2, "__fmul_rn(__fmul_rn(acc, acc), acc)", "__fmul_rn(acc, acc)"),
    ("pow", 4, "1.0f / ", ""),
    ("pow", 6, "rsqrtf", "sqrtf"),
    ("log1p", 0, "log1pf(acc)", "logf(1.0f + acc)"),
    ("expm1", 0, "expm1f(acc)", "expf(acc) - 1.0f"),
    ("log2", 0, "log2f", "logf"),
    ("sigmoid", 0, "expf(-x)", "expf(x)"),
    ("silu", 0, "__fmul_rn(acc, cutlass_fused_sigmoid(acc))", "cutlass_fused_sigmoid(acc)"),
    ("neg", 0, "-acc", "0.0f - acc"),
    ("sub", 0, "(acc, p0)", "(p0, acc)"),
    ("atan2", 0, "(acc, p0)", "(p0, acc)"),
    ("div", 1, "1.0f / __int_as_float(0x40400000)", "0.3333f"),
    ("where", 0, "v0 ? p0 : p1", "v0 ? p1 : p0"),
    ("where", 0, "acc != ", "acc > "),
    ("le", 0, "<=", "<"),
    ("ne", 0, "acc != p0", "acc < p0 || acc > p0"),
    ("xor", 0, "v0 != v1", "v0 || v1"),
    ("float", 0, "1.0f : 0.0f", "0.0f : 1.0f"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    print_all, _ = make_printer(tmp_path_factory.mktemp("print"))
    texts = [write_text(word, WORDS[word], find_numbers(word, i))[0] for word, i, _, _ in FAULTS]
    sources = print_all(texts, "host")
    for i, (_, _, right, wrong) in enumerate(FAULTS):
        assert right in sources[i], right
        sources[i] = sources[i].replace(right, wrong)
    return compile_printed(sources, tmp_path_factory.mktemp("faults"))


def find_numbers(word, index):
    return NUMBERS.get(word, [{}])[index]


@pytest.mark.parametrize(
    "index", range(len(FAULTS)), ids=[f"{word} {wrong}" for word, _, _, wrong in FAULTS]
)
def test_fault_is_found(run, index):
    word, which, *_ = FAULTS[index]
    numbers = find_numbers(word, which)
    inputs = make_inputs(write_text(word, WORDS[word], numbers)[1])
    (ours,) = run(index, list(inputs))
    eager = run_word(word, WORDS[word], numbers, inputs)
    truth = run_word(word, WORDS[word], numbers, inputs.double())
    assert find_faults(word, ours, eager, truth, inputs)
