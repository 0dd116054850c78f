"""PyTorch's own inputs for tests of modules, given to the modules that stand for its: what
torch.testing._internal.common_modules has for Linear, BatchNorm1d and Softmax."""

import copy
import pickle

import pytest
import torch

from cutlass_fused import functional, nn

pytest.importorskip("expecttest")  # which the next import needs; requirements.txt names it
from torch.testing._internal.common_modules import module_db  # noqa: E402

# That import forbids to set PyTorch's flags but in a context, for all tests that follow.
torch.backends.disable_global_flags.__globals__["__allow_nonbracketed_mutation_flag"] = True

NAMES = ("Linear", "BatchNorm1d", "Softmax")
INFOS = {info.module_cls.__name__: info for info in module_db if info.name.startswith("nn.")}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def list_cases(dtypes, training=(True, False)):
    for name in NAMES:
        info = INFOS[name]
        for dtype in dtypes:
            for mode in training:
                options = {"device": "cpu", "dtype": torch.float32, "requires_grad": False}
                inputs = info.module_inputs_func(info, training=mode, **options)
                for index, case in enumerate(inputs):
                    yield pytest.param(
                        name,
                        index,
                        dtype,
                        mode,
                        id=f"{name}-{case.desc or index}-{dtype}-{'train' if mode else 'eval'}",
                    )


def each(dtypes=DTYPES, training=(True, False)):
    cases = list(list_cases(dtypes, training))
    assert len(cases) >= 13 * len(dtypes)
    return pytest.mark.parametrize(("name", "index", "dtype", "training"), cases)


def make(name, index, dtype, training, **draw):
    """Ours and PyTorch's, of the same parameters, and the arguments of a call."""
    info = INFOS[name]
    # Drawn in fp32, which numbers of 16 bits cannot be by all of PyTorch's functions.
    wide = dtype if dtype.itemsize > 2 else torch.float32
    options = {"device": "cpu", "dtype": wide, "requires_grad": False} | draw
    torch.manual_seed(0)
    case = list(info.module_inputs_func(info, training=training, **options))[index]
    given, kwargs = case.constructor_input.args, dict(case.constructor_input.kwargs)
    if name != "Softmax":
        kwargs |= {"dtype": dtype, "device": "cpu"}
    theirs = info.module_cls(*given, **kwargs)
    ours = getattr(nn, name)(*given, **kwargs)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    arguments = [a.to(dtype) if isinstance(a, torch.Tensor) else a for a in case.forward_input.args]
    if not arguments:  # PyTorch's own case of a Linear has its input by name
        arguments = [a.to(dtype) for a in case.forward_input.kwargs.values()]
    return ours.train(training), theirs.train(training), arguments, case


def limits(dtype):
    return {"rtol": 1e-5, "atol": 1e-5} if dtype.itemsize > 2 else {"rtol": 0.05, "atol": 0.05}


def close(ours, theirs, dtype):
    torch.testing.assert_close(ours, theirs, **limits(dtype))


@each()
def test_forward(name, index, dtype, training):
    ours, theirs, arguments, case = make(name, index, dtype, training)
    y = ours(*arguments)
    close(y, theirs(*arguments), dtype)
    if case.reference_fn is not None and dtype.itemsize > 2:
        close(y, case.reference_fn(theirs, *arguments), dtype)
    close(dict(ours.state_dict()), dict(theirs.state_dict()), dtype)
    close(ours(input=arguments[0]), theirs(input=arguments[0]), dtype)


@each()
def test_gradients(name, index, dtype, training):
    ours, theirs, arguments, _ = make(name, index, dtype, training)
    grads = []
    for module in (ours, theirs):
        x = arguments[0].clone().requires_grad_()
        y = module(x)
        weights = torch.rand(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
        leaves = [x, *module.parameters()]
        grads.append(torch.autograd.grad(y, leaves, weights))
    close(*grads, dtype)


@each([torch.float64])
def test_gradcheck(name, index, dtype, training):
    ours, _, arguments, _ = make(name, index, dtype, training)
    parameters = dict(ours.named_parameters())
    if "num_batches_tracked" in dict(ours.named_buffers()):
        ours.momentum = 0.0  # the running statistics are not what is differentiated

    def run(x, *values):
        given = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(ours, given, (x,))

    leaves = [arguments[0], *(p.detach() for p in parameters.values())]
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    # No second gradients: those of this package have none themselves.
    assert torch.autograd.gradcheck(run, leaves, check_batched_grad=False)


@each()
def test_strided_inputs(name, index, dtype, training):
    ours, theirs, (x,), _ = make(name, index, dtype, training)
    around = torch.full((*x.shape, 2), torch.nan, dtype=dtype)
    around[..., 0] = x
    close(ours(around[..., 0]), theirs(x), dtype)


@each([torch.float32])
def test_pickle_copy_and_print(name, index, dtype, training):
    ours, theirs, arguments, _ = make(name, index, dtype, training)
    ours.eval(), theirs.eval()
    expected = ours(*arguments)
    for twin in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert torch.equal(twin(*arguments), expected)
        assert repr(twin) == repr(ours) == f"cutlass_fused.{theirs!r}"
        assert list(twin.state_dict()) == list(theirs.state_dict())


@each([torch.float32], [False])
def test_factory_arguments(name, index, dtype, training):
    """Made on a device and in a dtype, and on "meta" without memory."""
    ours, theirs, arguments, case = make(name, index, dtype, training)
    if name == "Softmax":
        assert not ours.state_dict()
        return
    given, kwargs = case.constructor_input.args, case.constructor_input.kwargs
    for options in (
        {"dtype": torch.float64},
        {"device": "meta"},
        {"device": "meta"} | {"dtype": None},
    ):
        module = getattr(nn, name)(*given, **kwargs, **options)
        plain = type(theirs)(*given, **kwargs, **options)
        for mine, other in zip(module.parameters(), plain.parameters(), strict=True):
            assert (mine.dtype, mine.device, mine.shape) == (other.dtype, other.device, other.shape)
    module = getattr(nn, name)(*given, **kwargs).to_empty(device="meta")
    assert module(arguments[0].to("meta")).shape == theirs(arguments[0]).shape


@each([torch.float32], [False])
def test_names_of_constructors(name, index, dtype, training):
    """Every argument of PyTorch's constructor has its name here, and its place where it is given
    by that there."""
    del index, dtype, training
    ours, theirs = (kind.__init__.__code__ for kind in (getattr(nn, name), INFOS[name].module_cls))
    mine = ours.co_varnames[: ours.co_argcount + ours.co_kwonlyargcount]
    assert set(theirs.co_varnames[: theirs.co_argcount + theirs.co_kwonlyargcount]) <= set(mine)


def test_functions():
    """Given what the modules hold, by PyTorch's order of the arguments."""
    ours, theirs, (x,), _ = make("BatchNorm1d", 0, torch.float32, True)
    statistics = [(m.running_mean.clone(), m.running_var.clone()) for m in (ours, theirs)]
    affine = (theirs.weight, theirs.bias, True, 0.3, 1e-3)
    close(
        functional.batch_norm(x, *statistics[0], *affine),
        torch.nn.functional.batch_norm(x, *statistics[1], *affine),
        x.dtype,
    )
    close(*statistics, x.dtype)
    ours, theirs, (x,), _ = make("Linear", 0, torch.float32, True)
    parameters = (theirs.weight, theirs.bias)
    close(functional.linear(x, *parameters), torch.nn.functional.linear(x, *parameters), x.dtype)
    for dim in (0, 1, -1):
        close(functional.softmax(x, dim), torch.nn.functional.softmax(x, dim), x.dtype)
