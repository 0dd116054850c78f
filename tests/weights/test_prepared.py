"""What cutlass_fused.prepare leaves with a module, and who finds it.

A CPU splits nothing: the tests put an empty split where a GPU's would be.
"""

import copy
import io

import pytest
import torch

import cutlass_fused
from cutlass_fused import nn
from cutlass_fused.nn._parts import read_operands
from cutlass_fused.weights import prepared
from cutlass_fused.weights import splits as weight_splits
from cutlass_fused.weights.prepared import PreparedSplit

MODULES = {
    "Linear": lambda: nn.Linear(6, 8, precision="ieee"),
    "LinearScaleLeakyReLU": lambda: nn.LinearScaleLeakyReLU(6, 8, 2.0, 0.1, precision="ieee"),
    "LinearScaleBatchNorm1d": lambda: nn.LinearScaleBatchNorm1d(6, 8, (8,), precision="ieee"),
    "LinearBatchNorm1dScaleSoftmax": lambda: nn.LinearBatchNorm1dScaleSoftmax(
        6, 8, precision="ieee"
    ),
}


@pytest.fixture(params=MODULES)
def module(request):
    module = MODULES[request.param]()
    gemm = get_gemm(module)
    gemm.__dict__["_prepared_split"] = PreparedSplit(gemm.weight, "ieee")
    return module


def get_gemm(module):
    return getattr(module, "gemm", module)


def find(module, precision="ieee"):
    return read_operands(get_gemm(module), precision)[2]


def run_and_list_splits(module):
    """The split that each op of a compiled graph is handed."""
    splits = []

    def backend(graph, inputs):
        for node in graph.graph.nodes:
            if "cutlass_fused" in str(node.target):
                names = [argument.name for argument in node.target._schema.arguments]
                given = dict(zip(names, node.args, strict=False)) | node.kwargs
                splits.append(given.get("weight_split"))
        return graph

    with torch.no_grad():
        torch.compile(module, backend=backend, fullgraph=True)(torch.randn(4, 6))
    return splits


def test_it_is_found_until_the_weight_changes(module):
    assert find(module) is find(module) is not None
    with torch.no_grad():
        get_gemm(module).weight.mul_(2)
    assert find(module) is None


def test_it_is_not_found_for_another_weight(module):
    gemm = get_gemm(module)
    gemm.weight = torch.nn.Parameter(gemm.weight.detach().clone())
    assert find(module) is None


def test_it_is_not_found_for_another_precision_or_type(module):
    assert find(module, "tf32") is None
    module.half()
    assert find(module) is None


def test_no_precision_is_that_of_pytorch(module):
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        assert find(module, None) is not None
        torch.set_float32_matmul_precision("high")
        assert find(module, None) is None
    finally:
        torch.set_float32_matmul_precision(before)


def test_copies_and_pickles_have_none(module):
    assert find(copy.deepcopy(module)) is None
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    assert find(torch.load(file, weights_only=False)) is None
    assert not [name for name in module.state_dict() if "split" in name]
    assert find(module) is not None


def test_a_compiled_graph_reads_it(module):
    (split,) = run_and_list_splits(module)
    assert isinstance(split, torch.fx.Node)


def test_without_it_the_split_is_part_of_the_graph(module):
    del get_gemm(module).__dict__["_prepared_split"]
    assert run_and_list_splits(module) == [None]


def test_a_module_with_it_computes_the_same(module):
    x = torch.randn(4, 6)
    plain = copy.deepcopy(module)
    with torch.no_grad():
        torch.testing.assert_close(module(x), plain(x), rtol=0, atol=0)


def test_invalidate_reaches_it(module):
    weight = get_gemm(module).weight
    cutlass_fused.invalidate(torch.randn(2, 2))
    assert find(module) is not None
    cutlass_fused.invalidate(weight)
    assert find(module) is None


def test_invalidate_reaches_what_is_compiled(module):
    """The forgotten split is in no new graph, and one that reads it is compiled anew."""
    (split,) = run_and_list_splits(module)
    assert split is not None
    cutlass_fused.invalidate(module)
    assert run_and_list_splits(module) == [None]


def test_a_weight_can_be_swapped_behind_invalidate(module):
    gemm = get_gemm(module)
    new = torch.nn.Parameter(torch.ones_like(gemm.weight))
    with pytest.raises(RuntimeError, match="weakref"):
        torch.utils.swap_tensors(gemm.weight, new)
    cutlass_fused.invalidate(module)
    torch.utils.swap_tensors(gemm.weight, new)
    assert gemm.weight.eq(1).all() and find(module) is None


@pytest.mark.parametrize("argument", [lambda module: module, lambda module: None])
def test_invalidate_of_a_module_or_of_everything_reaches_it(module, argument):
    cutlass_fused.invalidate(argument(module))
    assert find(module) is None


def test_a_fused_optimizer_is_noticed(module):
    weight = get_gemm(module).weight
    torch.optim.SGD([torch.nn.Parameter(torch.randn(2, 2))], fused=True).step()
    assert find(module) is not None
    weight.grad = torch.ones_like(weight)
    torch.optim.AdamW([weight], fused=True).step()
    assert find(module) is None


def test_it_is_not_found_for_a_new_weight_in_the_same_memory(module):
    gemm = get_gemm(module)
    data = gemm.weight.data
    gemm.weight = None
    data.mul_(2)
    gemm.weight = torch.nn.Parameter(data)
    assert find(module) is None


@torch.no_grad()
def test_it_is_not_found_within_torch_func(module):
    """vmap over two weights: a tensor of its own without memory."""
    module.eval()
    weight = get_gemm(module).weight
    name = next(name for name, parameter in module.named_parameters() if parameter is weight)
    x, weights = torch.randn(4, 6), torch.stack([weight, 2 * weight])

    def compute(weight):
        return torch.func.functional_call(module, {name: weight}, (x,))

    expected = torch.stack([compute(weight) for weight in weights])
    torch.testing.assert_close(torch.vmap(compute)(weights), expected)


def test_it_is_not_found_for_another_storage_at_the_same_address():
    """As of memory that was given back and taken again."""
    numbers = torch.randn(8, 6).numpy()
    module = nn.Linear(6, 8, precision="ieee")
    module.weight.data = torch.from_numpy(numbers)
    module.__dict__["_prepared_split"] = PreparedSplit(module.weight, "ieee")
    assert find(module) is not None
    address = module.weight.data_ptr()
    module.weight.data = torch.from_numpy(numbers)
    assert module.weight.data_ptr() == address and find(module) is None


REPLACEMENTS = {
    "another module": lambda gemm: torch.nn.Sequential(gemm),
    "another forward": lambda gemm: type("Adapted", (torch.nn.Linear,), {"forward": None})(6, 8),
    "a computed weight": lambda gemm: torch.nn.utils.parametrizations.weight_norm(gemm),
}


@pytest.mark.parametrize("replace", REPLACEMENTS.values(), ids=REPLACEMENTS)
def test_prepare_leaves_what_took_the_place_of_a_linear(replace):
    module = nn.LinearScaleLeakyReLU(6, 8, 2.0, 0.1)
    assert len(list(prepared._find_gemms(module))) == 1
    module.gemm = replace(module.gemm)
    assert list(prepared._find_gemms(module)) == []
    assert cutlass_fused.prepare(module) is module


# ---- without the weight ----


@pytest.fixture
def alone():
    """A split that serves alone, as on a GPU, where the weight then is elsewhere."""
    module = nn.Linear(6, 8, bias=False, precision="ieee")
    split = PreparedSplit(module.weight, "ieee")
    split.take_place(module.weight)
    module.__dict__["_prepared_split"] = split
    return module


@torch.no_grad()
def test_what_stands_for_the_weight_has_its_shape_and_no_number(alone):
    weight, _, split = read_operands(alone, "ieee")
    assert weight.shape == (8, 6) and weight.stride() == (0, 0) and weight.isnan().all()
    assert split is alone.__dict__["_prepared_split"].split
    assert weight_splits.find_split(weight, "ieee") is None


def test_what_serves_alone_is_split_in_rows(monkeypatch):
    """The ops read what stands for the weight as if it lay in rows."""
    matrices = []
    make = weight_splits.KeptSplit

    def record(matrix, *others):
        matrices.append(matrix)
        return make(matrix, *others)

    monkeypatch.setattr(weight_splits, "KeptSplit", record)
    for weight in (torch.randn(8, 6), torch.randn(6, 8).t()):
        weight = torch.nn.Parameter(weight)
        split = PreparedSplit(weight, "ieee")
        assert matrices[-1].stride() == weight.stride()  # beside the weight, as that lies
        split.find_for_no_weight(weight)
        assert matrices[-1].is_contiguous() and torch.equal(matrices[-1], weight)


def test_calls_that_need_the_weight_are_refused(alone):
    refused = pytest.raises(RuntimeError, match="a module whose weights were left on the CPU must")
    with refused:
        alone(torch.randn(4, 6))
    with torch.no_grad():
        with refused:
            read_operands(alone, "tf32")
        alone.weight.mul_(2)
        with refused:
            read_operands(alone, "ieee")


@torch.no_grad()
def test_it_outlives_invalidation_and_steps_of_others(alone):
    cutlass_fused.invalidate()
    torch.optim.SGD([torch.nn.Parameter(torch.randn(2, 2))], fused=True).step()
    assert read_operands(alone, "ieee")[2] is not None


@torch.no_grad()
def test_a_module_that_moved_as_a_whole_is_served_by_its_weight():
    module = nn.Linear(6, 8, precision="ieee")
    split = PreparedSplit(module.weight, "ieee")
    split.take_place(module.weight)
    module.__dict__["_prepared_split"] = split
    weight, _, split = read_operands(module, "ieee")
    assert weight is module.weight and split is None


def test_prepare_leaves_what_no_gpu_splits():
    modules = torch.nn.Sequential(*(make() for make in MODULES.values()))
    assert cutlass_fused.prepare(modules) is modules
    assert not [m for m in modules.modules() if "_prepared_split" in vars(m)]


def test_fused_layers_are_found():
    model = torch.nn.Sequential(
        *(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.BatchNorm1d(8), nn.Linear(8, 4))
    )
    assert [gemm for gemm, _ in prepared._find_gemms(model, True)] == [model[3]]
    cutlass_fused.fuse(model, precision="tf32")
    for mode in (True, False):  # a plan for each
        model.train(mode)(torch.randn(5, 6))
    found = list(prepared._find_gemms(model, True))
    assert found[0] == (model[0], "tf32") and found[-1][0] is model[3]
    assert [gemm for gemm, _ in found].count(model[0]) == 1
    # PyTorch's ops may be called there, which read the weight.
    assert [gemm for gemm, _ in prepared._find_gemms(model, False)] == [model[3]]
    cutlass_fused.unfuse(model)
    assert [gemm for gemm, _ in prepared._find_gemms(model, True)] == [model[3]]


def test_fused_layers_read_what_was_prepared(monkeypatch):
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU())
    (site,) = cutlass_fused.fuse(model, precision="ieee").sites
    ours = PreparedSplit(model[0].weight, "ieee")
    model[0].__dict__["_prepared_split"] = ours
    assert site.take(torch.randn(5, 6), ())[2] is ours.split
    with torch.no_grad():
        model[0].weight.mul_(2)
    assert site.take(torch.randn(5, 6), ())[2] is None


def test_prepare_takes_modules_only():
    with pytest.raises(TypeError, match=r"module must be a torch.nn.Module, got Parameter"):
        cutlass_fused.prepare(torch.nn.Parameter(torch.randn(2, 2)))
