"""The pass on graphs as Inductor gets them, which run here as they are: without its kernels."""

import copy

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

from cutlass_fused.graphs.epilogues import _fuse

EPILOGUE = torch.ops.cutlass_fused.linear_epilogue.default
_VIEWS = ("permute", "reshape", "view", "_unsafe_view", "unsqueeze", "squeeze", "expand", "full")


class Compiled:
    """A model whose graphs the pass has changed. graphs: forward, then backward."""

    def __init__(self, model, precision="ieee", **options):
        self.graphs, self._precision = [], precision
        backend = aot_autograd(
            fw_compiler=self._change,
            bw_compiler=self._change,
            decompositions=select_decomp_table(),
            partition_fn=min_cut_rematerialization_partition,
        )
        self._call = torch.compile(model, backend=backend, fullgraph=True, **options)

    def __call__(self, *inputs):
        return self._call(*inputs)

    def _change(self, graph, inputs):
        _fuse.fuse_graph(graph.graph, self._precision)
        graph.graph.lint()
        graph.recompile()
        self.graphs.append(graph)
        return make_boxed_func(graph.forward)

    def programs(self, index=0):
        """The lines of each program in a graph."""
        texts = [node.args[3] for node in self._calls(index) if node.target is EPILOGUE]
        return [text.split("\n")[2:-1] for text in texts]

    def ours(self, index=0):
        """Ops of ours that are called there."""
        return [name for space, name in self._list_ops(index) if space == "cutlass_fused"]

    def others(self, index=0):
        """What else is called there, without what moves no number."""
        ops = self._list_ops(index)
        return [name for space, name in ops if space != "cutlass_fused" and name not in _VIEWS]

    def _list_ops(self, index):
        targets = [node.target for node in self._calls(index)]
        ops = [target for target in targets if isinstance(target, torch._ops.OpOverload)]
        return [op._schema.name.split("::") for op in ops]

    def _calls(self, index):
        return [node for node in self.graphs[index].graph.nodes if node.op == "call_function"]


def error_of(found, exact):
    return (found.double() - exact).norm().item()


def check_as_exact(found, eager, exact, pooled=None):
    """At most twice the error of eager PyTorch, or what one rounding leaves. `pooled`: of results
    that are one number the errors are put there, by their place, for check_pooled to judge: how
    near eager comes to one number is luck."""
    for index, (ours, theirs, truth) in enumerate(zip(found, eager, exact, strict=True)):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        assert ours.stride() == theirs.stride()
        if not ours.dtype.is_floating_point:
            assert (ours - theirs).abs().max() <= 1
            continue
        rounding = torch.finfo(ours.dtype).eps * truth.norm().item()
        error, of_eager = error_of(ours, truth), error_of(theirs, truth)
        if pooled is not None and truth.numel() == 1:
            pooled.setdefault(index, []).append((error, of_eager, rounding))
            continue
        assert error <= 2 * of_eager + rounding, (index, error, of_eager, rounding)


def check_pooled(pooled):
    """The rule of check_as_exact, for the largest errors of several draws."""
    for index, errors in pooled.items():
        error, of_eager, rounding = map(max, zip(*errors, strict=True))
        assert error <= 2 * of_eager + rounding, (index, error, of_eager, rounding)


def choose_worse(one, other, exact):
    triples = zip(one, other, exact, strict=True)
    return [max(pair, key=lambda each: error_of(each, truth)) for *pair, truth in triples]


def compare(compiled, model, *inputs, train=False, behind=None, draws=1):
    """Results, and in training gradients of inputs and parameters, with those of the model in
    float64. `behind`: another model that may be as far from them. `draws`: of gradients of the
    results, which are judged together."""
    exact_model = copy.deepcopy(model).double()

    def run(function, module, wide):
        drawn = [run_once(function, module, wide, seed) for seed in range(1, 1 + draws)]
        return drawn[0] if draws == 1 else [torch.stack(each) for each in zip(*drawn, strict=True)]

    def run_once(function, module, wide, seed):
        given = [x.double() if wide else x.clone() for x in inputs]
        given = [x.requires_grad_(train) for x in given]
        with torch.set_grad_enabled(train):
            y = function(*given)
        ys = list(y) if isinstance(y, (tuple, list)) else [y]
        if not train:
            return ys
        torch.manual_seed(seed)
        grads = [torch.randn(each.shape, dtype=inputs[0].dtype).to(each) for each in ys]
        wanted = [*given, *module.parameters()]
        return [each.detach() for each in ys] + list(
            torch.autograd.grad(ys, wanted, grads, allow_unused=False)
        )

    with torch.random.fork_rng():
        eager = run(model, model, False)
        exact = run(exact_model, exact_model, True)
        if behind is not None:
            eager = choose_worse(eager, run(behind, behind, False), exact)
        check_as_exact(run(compiled, model, False), eager, exact)
