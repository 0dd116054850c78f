"""Programs of functions that people write compute what the functions do."""

import pytest
import torch
import traced
from program_cases import CASES

from cutlass_fused.programs.program import Acc, Operand, run
from cutlass_fused.programs.tracing.trace import trace
from cutlass_fused.programs.words import WORDS


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    tensors = traced.make_tensors(CASES[name])
    expected = traced.call(CASES[name], tensors)
    for found, each in zip(
        run(traced.find_program(name, CASES[name]), tensors[0], tensors[1:]), expected, strict=True
    ):
        torch.testing.assert_close(found, each, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_special_values(name):
    tensors = traced.make_special(CASES[name])
    expected = traced.call(CASES[name], tensors)
    for found, each in zip(
        run(traced.find_program(name, CASES[name]), tensors[0], tensors[1:]), expected, strict=True
    ):
        torch.testing.assert_close(found, each, rtol=1e-5, atol=0, equal_nan=True)
        assert torch.equal(found.signbit()[~each.isnan()], each.signbit()[~each.isnan()])


def text_of(function, *shapes):
    inputs = [Acc(), *map(Operand, range(len(shapes)))]
    return trace("it", function, [(3, 5), *shapes], inputs)[0].text


def test_text():
    text = text_of(lambda z, b: torch.nn.functional.gelu(z + b) * 0.1, (5,))
    assert text == (
        "program 1\noperands 1\nv0 = add acc p0\nv1 = gelu v0\n"
        "v2 = mul v1 0x1.999999999999ap-4\nreturn v2\n"
    )


@pytest.mark.parametrize(
    "one, other",
    [
        pytest.param(lambda z: 2 * z, lambda z: z * 2, id="number in front"),
        pytest.param(lambda z: z.exp() + z.exp(), lambda z: (lambda e: e + e)(z.exp()), id="twice"),
        pytest.param(lambda z: (z * 1, z.sin())[0] + 1, lambda z: z + 1, id="unused"),
        pytest.param(lambda z: z.mul(2).add_(1), lambda z: z * 2 + 1, id="in place"),
        pytest.param(lambda z: z * torch.tensor(2.0), lambda z: z * 2, id="made tensor"),
        pytest.param(lambda z: z * torch.full_like(z, 2.0).sqrt(), lambda z: z * 2**0.5, id="fold"),
        pytest.param(
            lambda z: z.view(1, *z.shape).squeeze(0).clone(), lambda z: z, id="views of all"
        ),
        pytest.param(torch.nn.SiLU(), torch.nn.functional.silu, id="module"),
        pytest.param(lambda z: z.float().contiguous().detach() + 1, lambda z: 1 + z, id="as it is"),
        pytest.param(
            lambda z: z.masked_fill(z.isnan(), 0), lambda z: torch.where(z != z, 0.0, z), id="mask"
        ),
    ],
)
def test_same_text(one, other):
    assert text_of(one) == text_of(other)


def test_numbers_by_their_bits():
    """-0.0 is another number than 0.0, which a dictionary of numbers would not see."""
    text = text_of(lambda z: z.clamp(-0.0, 1) + z.clamp(0.0, 1))
    assert "-0x0.0p+0" in text and " 0x0.0p+0" in text


def test_rows_of_two_dimensions():
    of_two = text_of(lambda z, b: z + b, (1, 5))
    assert of_two == text_of(lambda z, b: z + b, (5,))
    assert of_two == text_of(lambda z, b: z + b.view(1, -1), (5,))
    assert of_two == text_of(lambda z, b: z + b.expand_as(z), (5,))


@pytest.mark.parametrize("word", [word for word, each in WORDS.items() if each.result == "b"])
def test_truths_as_numbers(word):
    """Where a function computes with truths."""
    operator = {"not": torch.logical_not, "and": torch.logical_and, "or": torch.logical_or}.get(
        word, torch.logical_xor if word == "xor" else getattr(torch, word, None)
    )
    count = len(WORDS[word].arguments)

    def function(z, b):
        return z * operator(*(z, b)[:count]) + operator(*(z > 0, b > 0)[:count])

    program, *_ = trace("it", function, [(3, 5), (3, 5)], [Acc(), Operand(0)])
    acc = torch.tensor([[0.0, -0.0, 1.0, -2.0, float("nan")]]).expand(5, 5)
    acc, b = acc.contiguous(), acc.t().contiguous()
    torch.testing.assert_close(run(program, acc, [b])[0], function(acc, b), equal_nan=True)


def test_within_others():
    """A first call may stand in any of them: what is traced is the same, and they do not see it."""
    function = torch.nn.functional.silu
    expected = text_of(function)
    with torch.inference_mode():
        assert text_of(function) == expected
    with torch._subclasses.FakeTensorMode():
        assert text_of(function) == expected
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: (text_of(function), x + 1)[1])
    assert len(graph(torch.ones(2)).graph.nodes) == 3
    found = []
    torch.func.vmap(lambda x: (found.append(text_of(function)), x)[1])(torch.ones(2))
    torch.func.grad(lambda x: (found.append(text_of(function)), x.sum())[1])(torch.ones(2))
    assert found == [expected] * 2
