"""What the documents say of the steps of training, beside their tables."""

import pytest
from documents import TEXTS

from bench import plot
from bench.plotting.training import PAIRS, collect_steps
from bench.steps.cases import KINDS, MODELS

EAGER, _, GRAPHS = PAIRS


@pytest.fixture(scope="module")
def steps():
    return collect_steps(plot.read_rows(None, "training", grad=True)[1], *KINDS)


def get_section():
    section = TEXTS["bench/README.md"].split("## Steps of training")[1].split("\n## ")[0]
    return " ".join(section.split("<!-- end -->")[1].split())


def list_ratios(steps, key, pair, precisions=("ieee", "tf32", "bf16", "fp16"), kinds=KINDS):
    """PyTorch's over ours: times, or memory."""
    peer, ours = pair
    return [
        columns[precision][peer][key] / columns[precision][ours][key]
        for case, columns in steps.items()
        for precision in precisions
        if MODELS[case[0]].kind in kinds
        if {peer, ours} <= columns.get(precision, {}).keys()
    ]


def count_lost(ratios):
    return sum(ratio < 1 for ratio in ratios)


def test_no_step_under_ieee_is_slower_on_the_gpu(steps):
    ratios = list_ratios(steps, "ms", EAGER, ["ieee"])
    assert min(ratios) > 1
    text = f'none of the {len(ratios)} steps under `"ieee"` is slower than with eager PyTorch, '
    assert f"{text}which takes {min(ratios):.2f} to {max(ratios):.2f} times" in get_section()


@pytest.mark.parametrize(
    ("precision", "text"),
    [
        ("tf32", 'Under `"tf32"` {} of {} steps are slower, the worst at {:.2f} of'),
        ("ieee", 'under `"ieee"` {} of {}, the worst at {:.2f};'),
        ("bf16", "in bf16 {} of {}, the worst at {:.2f}."),
    ],
)
def test_eager_steps_on_the_clock_of_the_host(steps, precision, text):
    first = " ".join(TEXTS["README.md"].split())
    ratios = list_ratios(steps, "wall_ms", EAGER, [precision])
    found = count_lost(ratios), len(ratios), min(ratios)
    assert text.format(*found) in get_section()
    if precision == "tf32":
        claim = (
            '`"tf32"` {} of {} eager steps on an H200 were slower than PyTorch\'s, the worst at '
        )
        claim += "{:.2f} of its speed"
        assert claim.format(*found) in first
    if precision == "ieee":
        assert 'of its speed, and under `"ieee"` {} of {}.'.format(*found) in first


def test_potentials_under_tf32(steps):
    ratios = {
        clock: list_ratios(steps, clock, EAGER, ["tf32"], ["potential"])
        for clock in ("ms", "wall_ms")
    }
    gpu, host = ratios.values()
    section = get_section()
    assert f"ours have {min(gpu):.2f} to {max(gpu):.2f} of the speed of eager" in section
    few = f"they have {min(host):.2f} to {max(host):.2f}, and less than 1 in {count_lost(host)}"
    assert f"{few} of {len(host)} steps" in section
    assert "for energies from a width of 256 on, more than 1 for all others." in section
    wide = {c: of for c, of in steps.items() if "energies" in c[0] and c[3] >= 256}
    others = {c: of for c, of in steps.items() if c not in wide}
    assert max(list_ratios(wide, "ms", EAGER, ["tf32"], ["potential"])) < 1
    assert min(list_ratios(others, "ms", EAGER, ["tf32"], ["potential"])) > 1
    assert count_lost(host) > len(host) / 2  # "Most"
    assert max(list_ratios(wide, "wall_ms", EAGER, ["tf32"], ["potential"])) < 1  # "on both"


def test_captured_steps(steps):
    assert min(list_ratios(steps, "wall_ms", (EAGER[0], GRAPHS[1]))) > 1  # faster than eager
    host, gpu = (list_ratios(steps, clock, GRAPHS) for clock in ("wall_ms", "ms"))
    section = get_section()
    faster = len(host) - count_lost(host)
    assert f"and {faster} of {len(host)} are faster than PyTorch's `torch.compile`" in section
    few = f"faster in {count_lost(gpu)} of these {len(gpu)}, and takes as little as {min(gpu):.2f}"
    assert few in section
    # "These are potentials, the PINN, and small models"
    assert count_lost(list_ratios(steps, "ms", GRAPHS, kinds=["layer"])) == 0


def test_memory(steps):
    section = get_section()
    wide, tf32 = (list_ratios(steps, "peak_mib", EAGER, [name]) for name in ("ieee", "tf32"))
    few = f'{count_lost(wide)} of {len(wide)} steps of ours under `"ieee"` take more memory'
    assert few in section
    assert f'and {count_lost(tf32)} of {len(tf32)} under `"tf32"`' in section
    least = min(wide)
    assert f'under `"ieee"` PyTorch takes as little as {least:.2f} of it.' in section
    narrow = list_ratios(steps, "peak_mib", EAGER, ["bf16", "fp16"])
    assert f"it takes {min(narrow):.2f} to {max(narrow):.2f} times as much as ours." in section


def test_steps_of_the_models_in_the_first_document(steps):
    """At the shapes of the table there, against the faster of eager and torch.compile."""
    shapes = {name: max(MODELS[name].shapes, key=lambda shape: shape[1]) for name in MODELS}
    least = []
    for precisions in (["ieee"], ["tf32"], ["bf16", "fp16"]):
        ratios = []
        for case, columns in steps.items():
            if MODELS[case[0]].kind == "layer" and case[1:] == shapes[case[0]]:
                for rows in (columns[precision] for precision in precisions):
                    peer = min(rows[name]["ms"] for name in ("eager", "compile"))
                    ratios.append(peer / rows["ours"]["ms"])
        assert len(ratios) == 4 * len(precisions)
        least.append(min(ratios))
    text = (
        "at least {:.2f} times as long as ours for a forward and a backward pass of these models "
        "at these shapes "
    )
    text += 'under `"ieee"`, {:.2f} times under `"tf32"`, and {:.2f} times in 16 bits.'
    assert text.format(*least) in " ".join(TEXTS["README.md"].split())
