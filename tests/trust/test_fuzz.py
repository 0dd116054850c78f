"""The fuzzer on the CPU: what it draws, that it repeats itself, that it finds planted faults."""

import dataclasses
import json
import shlex

import fuzz_one
import fuzz_sums
import pytest
import torch
from calls import ALL_OPS
from fuzz_gradients import NAMES
from fuzz_inputs import LARGEST_SIZE, SMALL, Limits, draw_sizes
from fuzz_one import FAILURES, KINDS, draw_case, judge_one
from judge_mixed import check_product

from bench.trust import fuzz, pieces

SEED, CASES = 20, 100
COMMIT = "0123456789abcdef"


def test_cases_are_right():
    """Of all kinds. What is no failure has a name, and is rare."""
    found = [judge_one(SEED, number, "cpu", SMALL) for number in range(CASES)]
    assert not [each for each in found if each.verdict in FAILURES]
    assert sum(each.verdict == "right" for each in found) >= 0.9 * CASES
    assert {each.words.partition(":")[0] for each in found} == set(KINDS)
    assert any(each.has_canaries for each in found)


def test_everything_is_drawn():
    words = [draw_case(SEED, number, "cpu", SMALL)[0].words for number in range(1500)]
    named = {text.split()[0] for text in words}
    assert named >= {*ALL_OPS, *fuzz_sums.OPS, *NAMES}
    for part in ("non-finite", "some zeros", "minus zero", "train", "eval", "over c", "gradient"):
        assert any(part in text for text in words), part
    for layout in ("transpose", "skip_columns", "cut_block", "drop_rows", "swap_leading"):
        assert any(layout in text for text in words), layout
    for precision in ("ieee", "tf32", "bf16", "fp16", "bf16_fp32"):
        assert any(f" {precision} " in text for text in words), precision


def test_sizes():
    """From 1 to the largest, odd ones favoured, bounded by M * N * K."""
    import random

    rng, limits = random.Random(0), Limits()
    drawn = [draw_sizes(rng, limits) for _ in range(4000)]
    sizes = [size for each in drawn for size in each]
    assert min(sizes) == 1 and max(sizes) > 0.9 * LARGEST_SIZE
    assert sum(size % 2 for size in sizes) > 0.35 * len(sizes)
    products = [m * n * k for m, n, k in drawn]
    assert 2**32 < max(products) <= limits.products
    beyond = dataclasses.replace(limits, products=2**37, numbers=2**28, least_products=2**33)
    assert all(2**33 <= m * n * k <= 2**37 for m, n, k in (draw_sizes(rng, beyond),))


def as_bytes(results):
    return {
        name: tensor.contiguous().reshape(-1).view(torch.uint8)
        for name, tensor in results.items()
        if name != "guarded"
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_is_one_case(kind):
    """The same words and, run twice, the same bits; another draw has other numbers."""
    for number in range(4):
        case, _ = draw_case(SEED, number, "cpu", SMALL, (kind,))
        again, _ = draw_case(SEED, number, "cpu", SMALL, (kind,))
        ours, theirs = as_bytes(case.run()), as_bytes(again.run())
        assert case.words == again.words and ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        other, _ = draw_case(SEED, number, "cpu", SMALL, (kind,), draw=1)
        assert other.tensors["x"].shape == case.tensors["x"].shape
    assert not torch.equal(other.tensors["x"], case.tensors["x"])


@pytest.mark.parametrize("count", [1, 2])
def test_products_without_a_finite_output(count):
    x, weight = torch.full((count, 3), torch.nan).bfloat16(), torch.randn(5, 3)
    check_product(torch.full((count, 5), torch.nan), x, weight)
    with pytest.raises(AssertionError):
        check_product(torch.zeros(count, 5), x, weight)


# ---- planted faults ----


def spoil_value(case, results):
    y = next(iter(results.values()))
    flat = y.view(-1)
    worst = flat.abs().nan_to_num(nan=0.0, posinf=0.0).argmax()
    flat[worst] = flat[worst] * 1.1 + 0.1


def spoil_nan(case, results):
    y = next(iter(results.values())).view(-1)
    y[int(y.isfinite().nonzero()[-1])] = torch.nan


def spoil_infinity(case, results):
    y = next(iter(results.values())).view(-1)
    y[int(y.isfinite().nonzero()[0])] = -torch.inf


def spoil_input(case, results):
    case.tensors["x"].view(-1)[0] = 0.123 if case.tensors["x"].is_contiguous() else 0.0


def spoil_memory_around(case, results):
    """Of a view: what lies around it."""
    x = case.tensors["x"]
    torch.as_strided(x, (x.untyped_storage().nbytes() // x.itemsize,), (1,), 0)[-1] = 7.0


def spoil_canary(case, results):
    results["guarded"].memory[-1] = 0.0


def raise_error(case, results):
    raise RuntimeError("a launch failed")


def plant(monkeypatch, kind, spoil, wanted=lambda case: True):
    """All cases of this kind are spoilt; the number of the first that is wanted."""
    weight, draw = KINDS[kind]

    def draw_spoilt(*arguments):
        case = draw(*arguments)

        def run():
            results = case.run()
            spoil(case, results)
            return results

        return dataclasses.replace(case, run=run)

    numbers = (n for n in range(400) if wanted(draw(SEED, n, "cpu", SMALL)))
    number = next(numbers)
    assert judge_one(SEED, number, "cpu", SMALL, (kind,)).verdict not in FAILURES
    monkeypatch.setitem(fuzz_one.KINDS, kind, (weight, draw_spoilt))
    return number


def is_plain(case):
    """With numbers in x and in its result, and no NaN."""
    results = case.run()
    y = next(iter(results.values()))
    return "non-finite" not in case.words and y.numel() > 1 and bool(y.isfinite().all())


@pytest.mark.parametrize("spoil", [spoil_value, spoil_nan, spoil_infinity])
@pytest.mark.parametrize("kind", KINDS)
def test_wrong_results_are_found(monkeypatch, kind, spoil):
    number = plant(monkeypatch, kind, spoil, is_plain)
    found = judge_one(SEED, number, "cpu", SMALL, (kind,))
    assert found.verdict == "rejected", found


def test_missing_nan_is_found(monkeypatch):
    """A kernel that hides a NaN of its input."""

    def spoil(case, results):
        for tensor in results.values():
            if torch.is_floating_point(tensor):
                tensor.nan_to_num_(nan=0.0)

    def has_nan(case):
        return "y" in (results := case.run()) and bool(results["y"].isnan().any())

    number = plant(monkeypatch, "call", spoil, has_nan)
    assert judge_one(SEED, number, "cpu", SMALL, ("call",)).verdict == "rejected"


@pytest.mark.parametrize(
    ("spoil", "kind", "wanted", "told"),
    [
        (spoil_input, "call", lambda case: case.tensors["x"].is_contiguous(), "x, or what lies"),
        (spoil_memory_around, "mixed", lambda case: "cut_block" in case.words, "x, or what lies"),
        (spoil_canary, "sum", lambda case: case.words.startswith("linear_out"), "behind"),
    ],
)
def test_overwritten_memory_is_found(monkeypatch, spoil, kind, wanted, told):
    number = plant(monkeypatch, kind, spoil, wanted)
    found = judge_one(SEED, number, "cpu", SMALL, (kind,))
    assert found.verdict == "canary" and told in found.words


def test_exception_is_found(monkeypatch):
    number = plant(monkeypatch, "call", raise_error)
    found = judge_one(SEED, number, "cpu", SMALL, ("call",))
    assert found.verdict == "raised" and "a launch failed" in found.words


# ---- the command ----


def run(folder, *arguments):
    options = ("--device", "cpu", "--seed", str(SEED), "--commit", COMMIT, "--processes", "1")
    return fuzz.main([*options, "--out", str(folder), *arguments])


def test_runs_are_pieces_that_go_on(tmp_path, capsys):
    assert run(tmp_path, "--cases", "3") == 0
    assert "0 of 3 are left" in capsys.readouterr().out
    assert run(tmp_path, "--cases", "5") == 0
    first, second = pieces.read_pieces(tmp_path, "fuzz")
    assert (first["numbers"], second["numbers"]) == ([[0, 3]], [[3, 5]])
    assert sum(second["verdicts"].values()) == 2 and first["meta"]["commit"] == COMMIT
    # Another library, or another generator, has judged nothing yet.
    path = min(tmp_path.glob("*.json"))
    path.write_text(json.dumps(first | {"meta": first["meta"] | {"library": "other"}}))
    options = fuzz.parse(["--device", "cpu", "--seed", str(SEED), "--out", str(tmp_path)])
    assert fuzz.find_done(tmp_path, second["meta"], options) == {3, 4}


def test_one_line_repeats_a_failure(monkeypatch, capsys):
    number = plant(monkeypatch, "call", spoil_nan, is_plain)
    line = ["--device", "cpu", "--kinds", "call", "--only", f"{SEED}:{number}"]
    assert fuzz.main(line) == 1
    assert "rejected: call: " in capsys.readouterr().out


def test_cases_without_memory_are_tried_again(tmp_path):
    options = fuzz.parse(["--device", "cpu", "--out", str(tmp_path)])
    meta = pieces.describe("cpu", COMMIT)
    tally = fuzz.Tally(options, meta)
    for number, verdict in enumerate(("right", fuzz.OUT_OF_MEMORY, "canary")):
        tally.add(number, verdict, "words", False)
    tally.write(tmp_path / "fuzz-1-000.json")
    assert fuzz.find_done(tmp_path, meta, options) == {0, 2}


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_process_whose_gpu_is_lost_judges_no_more(monkeypatch, is_broken):
    """An error of CUDA stays, and would be every later case's."""

    def synchronize():
        if is_broken:
            raise RuntimeError("an illegal memory access")

    class Pipe:
        def __init__(self):
            self.numbers, self.sent = [1, 2], []

        def recv(self):
            if not self.numbers:
                raise EOFError
            return self.numbers.pop(0)

        def send(self, found):
            self.sent.append(found)

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(fuzz, "judge_one", lambda *given: fuzz.Found("raised", "a launch failed"))
    pipe = Pipe()
    fuzz.work(pipe, SEED, "cuda", SMALL, ())
    assert [goes_on for _, goes_on in pipe.sent] == ([False] if is_broken else [True, True])


def test_failures_are_told(tmp_path, capsys):
    options = fuzz.parse(["--device", "cpu", "--out", str(tmp_path)])
    tally = fuzz.Tally(options, {})
    tally.add(4, "right", "", False)
    tally.add(7, "canary", "words", True)
    tally.add(9, fuzz.DIED, "the process ended with -11", False)
    assert [told["number"] for told in fuzz.report(tally, options)] == [7, 9]
    assert "canary, --only 1:7 --device cpu: words" in capsys.readouterr().out


@pytest.mark.parametrize(
    "given", [[], ["--beyond"], ["--device", "cpu", "--kinds", "mixed,program alone"]]
)
def test_a_failure_is_told_with_the_line_that_repeats_it(given):
    """The same seed and number are another case where other sizes or kinds are drawn."""
    options = fuzz.parse(["--seed", "5", "--out", "none", *given])
    again = fuzz.parse(shlex.split(fuzz.write_line(7, options)))
    assert again.only == (5, 7)
    for name in ("limits", "kinds", "device"):
        assert getattr(again, name) == getattr(options, name)
