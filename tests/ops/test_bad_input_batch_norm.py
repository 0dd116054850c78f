"""Bad input to the functions with a batch norm: refused, with the reason, before any update."""

import pytest
import torch
from norm_functions import (
    BATCH_NORM,
    FUNCTIONS,
    FUSED,
    K,
    M,
    N,
    call,
    make_leaves,
    make_statistics,
)

from cutlass_fused import functional, nn

functions = pytest.mark.parametrize("function", FUNCTIONS, ids=str)
in_train_and_eval = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
with_and_without_grad = pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])


def _put(value, name):
    """What becomes of the leaves, and options: whichever the argument is."""
    if name in ("gamma", "beta"):
        return {name: lambda t: value}, {}
    return {}, {name: value}


def _not_a_tensor(name, found="list"):
    return f"{name} must be a tensor or None, got {found}"


def bad_arguments():
    """Name, training, what becomes of the leaves, options, error and message."""
    one_row = {"x": lambda t: t[:1]}
    yield (
        "one row",
        True,
        one_row,
        {},
        ValueError,
        rf"Expected more than 1 value per channel when training, got input size torch.Size\(\[1, "
        rf"{N}\]\)",
    )
    yield ("eps 0", True, {}, {"eps": 0.0}, ValueError, "eps must be positive, got 0.0")
    yield ("eps below 0", False, {}, {"eps": -1.0}, ValueError, "eps must be positive, got -1.0")
    message = "running_mean and running_var must be given unless training"
    nothing = (None, None)
    yield ("no statistics", False, {}, {"statistics": nothing}, ValueError, message)
    for name in ("running_mean", "running_var"):
        yield (f"no {name}", False, {}, {name: None}, ValueError, message)
        expanded = {name: torch.ones(1).expand(N)}
        own = f"{name} must have elements of its own, which are updated in place, got stride 0"
        yield (f"expanded {name}", True, {}, expanded, RuntimeError, own)
    yield ("x a list", True, {"x": lambda t: [1.0]}, {}, TypeError, "x must be a tensor, got list")
    for name in ("running_mean", "running_var", "num_batches_tracked", "gamma", "beta"):
        yield (f"{name} a list", True, *_put([1.0], name), TypeError, _not_a_tensor(name))
        yield (f"{name} a number", False, *_put(1.0, name), TypeError, _not_a_tensor(name, "float"))
    for momentum, found in (("0.1", "str"), (torch.ones(2), "Tensor")):
        message = f"momentum must be a number or None, got {found}"
        yield (f"momentum {found}", True, {}, {"momentum": momentum}, TypeError, message)
    for eps in (None, "1e-5", torch.ones(2)):
        message = f"eps must be a number, got {type(eps).__name__}"
        yield (f"eps {type(eps).__name__}", False, {}, {"eps": eps}, TypeError, message)
    message = "eps must be positive, got nan"
    yield ("eps NaN", True, {}, {"eps": float("nan")}, ValueError, message)
    message = "num_batches_tracked must be a tensor where momentum is None, got None"
    yield ("no count", True, {}, {"momentum": None}, RuntimeError, message)
    short = {"gamma": lambda t: t[:-1]}
    message = rf"gamma must have shape \(N,\) = \({N},\), got \({N - 1},\)"
    yield ("short gamma", True, short, {}, RuntimeError, message)
    yield ("short gamma", False, short, {}, RuntimeError, message)
    count = {"num_batches_tracked": torch.tensor(1.0)}
    yield ("float count", True, {}, count, RuntimeError, "num_batches_tracked must be int64")


def bad_products():
    word = {"precision": "fp8"}
    message = "precision must be 'ieee', 'tf32' or None, got 'fp8'"
    yield ("precision", True, {}, word, ValueError, message)
    text = {"scale": lambda t: "1"}
    yield ("scale a text", True, text, {}, TypeError, "scale must be a number or a tensor, got str")
    scale = {"scale": lambda t: t[:-1]}
    yield ("short scale", True, scale, {}, RuntimeError, "scale must have one element or shape")
    weight = {"weight": lambda t: t[:, :-1]}
    yield ("narrow weight", True, weight, {}, RuntimeError, "x must have")
    yield ("no weight", True, {"weight": lambda t: None}, {}, TypeError, "weight must be a tensor")
    three = {"x": lambda t: t[None]}
    yield ("3-D x", True, three, {}, RuntimeError, "x must have 2 dimensions")
    dtype = {"out_dtype": torch.float64}
    yield ("bias a list", True, {"bias": lambda t: [1.0]}, {}, TypeError, _not_a_tensor("bias"))
    for training in (True, False):
        yield ("out_dtype", training, {}, dtype, RuntimeError, "out_dtype must be")


BAD = [
    pytest.param(function, *case, id=f"{function}-{name}-{'train' if case[0] else 'eval'}")
    for function in FUNCTIONS
    for name, *case in (*bad_arguments(), *(bad_products() if function.has_product else ()))
]


@pytest.mark.parametrize(("function", "training", "changes", "options", "error", "message"), BAD)
@with_and_without_grad
def test_refused_calls_say_why_and_update_nothing(
    function, training, changes, options, error, message, grad
):
    leaves = make_leaves(function, torch.float32)
    leaves |= {name: change(leaves[name]) for name, change in changes.items()}
    statistics, count = make_statistics(torch.float32), torch.tensor(3)
    before = [t.clone() for t in (*statistics, count)]
    if training and options.get("momentum", 0.1) is not None:
        options = {"num_batches_tracked": count} | options
    options = dict(options)
    given = list(options.pop("statistics", statistics))
    for place, name in enumerate(("running_mean", "running_var")):
        given[place] = options.pop(name, given[place])
    with torch.set_grad_enabled(grad), pytest.raises(error, match=message):
        call(function.ours, leaves, given, training, **options)
    assert all(map(torch.equal, (*statistics, count), before))


SPOILT = {
    "short": lambda t: t[:-1],
    "matrix": lambda t: t[None],
    "float64": torch.Tensor.double,
    "bfloat16": torch.Tensor.bfloat16,
    "elsewhere": lambda t: t.to("meta"),
}
VECTORS = [
    pytest.param(function, name, SPOILT[how], id=f"{function}-{name}-{how}")
    for function in FUNCTIONS
    for name in ("running_mean", "running_var", "gamma", "beta", "bias", "scale")
    for how in SPOILT
    if function.has_product or name not in ("bias", "scale")
    if name != "scale" or how not in ("matrix", "bfloat16")  # which are served
]


@pytest.mark.parametrize(("function", "name", "spoil"), VECTORS)
@in_train_and_eval
def test_gradients_change_no_message(function, training, name, spoil):
    """Where gradients are asked for, other ops may run than the one that checks."""
    leaves, statistics = make_leaves(function, torch.float32), list(make_statistics(torch.float32))
    if name.startswith("running"):
        place = ("running_mean", "running_var").index(name)
        statistics[place] = spoil(statistics[place])
    else:
        leaves[name] = spoil(leaves[name].detach()).requires_grad_()
    messages = []
    for grad in (False, True):
        with torch.set_grad_enabled(grad), pytest.raises(RuntimeError) as error:
            call(function.ours, leaves, statistics, training)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert messages[0].startswith(f"{function}: {name} must ")


@pytest.mark.parametrize("name", ["running_mean", "running_var"])
@in_train_and_eval
@functions
def test_running_statistics_that_require_a_gradient(function, training, name):
    """Refused, as by PyTorch's batch norm, where gradients are enabled."""
    leaves = {name: t.detach() for name, t in make_leaves(function, torch.float32).items()}
    statistics = make_statistics(torch.float32)
    before = [t.clone() for t in statistics]
    statistics[("running_mean", "running_var").index(name)].requires_grad_()
    with pytest.raises(RuntimeError, match=f"{name}.*requires_grad"):
        torch.nn.functional.batch_norm(torch.ones(5, N), *statistics, training=training)
    with pytest.raises(RuntimeError, match=f"^{function}: {name} must not require a gradient"):
        call(function.ours, leaves, statistics, training)
    assert all(map(torch.equal, statistics, before))
    with torch.no_grad():
        assert not call(function.ours, leaves, statistics, training).requires_grad


@pytest.mark.parametrize("name", ["running_mean", "running_var", "num_batches_tracked"])
@with_and_without_grad
@functions
def test_updates_of_tensors_of_inference_mode(function, grad, name):
    """PyTorch refuses such an update outside that mode: too late, when others have been done."""
    leaves = make_leaves(function, torch.float32)
    mean, var = make_statistics(torch.float32)
    tracked = {"running_mean": mean, "running_var": var, "num_batches_tracked": torch.tensor(3)}
    with torch.inference_mode():
        tracked[name] = tracked[name].clone()
    before = [t.clone() for t in tracked.values()]
    message = f"^{function}: {name} must be no tensor of torch.inference_mode"
    count = tracked["num_batches_tracked"]

    def run(training):
        statistics = (tracked["running_mean"], tracked["running_var"])
        return call(function.ours, leaves, statistics, training, num_batches_tracked=count)

    with torch.set_grad_enabled(grad), pytest.raises(RuntimeError, match=message):
        run(training=True)
    assert all(map(torch.equal, tracked.values(), before))
    with torch.no_grad():
        run(training=False)
    with torch.inference_mode():
        run(training=True)
    assert not any(map(torch.equal, tracked.values(), before))


def test_one_element_of_stride_0_is_its_own():
    x, mean = torch.randn(5, 1), torch.zeros(())
    functional.batch_norm(x, mean.expand(1), None, training=True, momentum=1.0)
    torch.testing.assert_close(mean, x.mean())


@with_and_without_grad
@pytest.mark.parametrize("function", FUSED, ids=str)
@pytest.mark.parametrize("size", [(), (N,), (2, N, 3)], ids=str)
def test_one_row_and_a_weight_that_is_no_matrix(function, grad, size):
    leaves = make_leaves(function, torch.float32, m=1) | {"weight": torch.ones(size)}
    message = rf"^{function}: weight must have 2 dimensions \(N, K\), got shape "
    with torch.set_grad_enabled(grad), pytest.raises(RuntimeError, match=message):
        call(function.ours, leaves, make_statistics(torch.float32), True)


def test_message_begins_with_the_function():
    x = torch.ones(1, N)
    for function in FUNCTIONS:
        leaves = make_leaves(function, torch.float32, m=1)
        with pytest.raises(ValueError, match=f"^{function}: Expected more"):
            call(function.ours, leaves, make_statistics(torch.float32), True)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        torch.nn.functional.batch_norm(x, None, None, training=True)  # PyTorch's words


@in_train_and_eval
@with_and_without_grad
@pytest.mark.parametrize("scale", [(N,), (M, 1)], ids=str)
@pytest.mark.parametrize("function", FUSED, ids=str)
def test_messages_name_the_function(function, scale, training, grad):
    """Not the op, of which there are two, nor the parts that run where scale has rows."""
    leaves = make_leaves(function, torch.float32) | {"scale": torch.ones(scale)}
    bad = {
        "x": leaves["x"][:, :-1],
        "bias": leaves["bias"][1:],
        "gamma": leaves["gamma"][1:],
        "beta": leaves["beta"].double(),
        "weight": leaves["weight"].double(),
    }
    for name, value in bad.items():
        statistics, count = make_statistics(torch.float32), torch.tensor(3)
        before = [t.clone() for t in (*statistics, count)]
        options = {"num_batches_tracked": count} if training else {}
        with torch.set_grad_enabled(grad), pytest.raises(RuntimeError) as error:
            call(function.ours, leaves | {name: value}, statistics, training, **options)
        assert str(error.value).startswith(f"{function}: {name} must ")
        assert all(map(torch.equal, (*statistics, count), before))
    statistics = make_statistics(torch.float32)
    if training:
        with pytest.raises(RuntimeError, match=f"^{function}: num_batches_tracked must be a tens"):
            call(function.ours, leaves, statistics, training, momentum=None)
        row = {"x": leaves["x"][:1], "scale": torch.ones(N if scale == (N,) else (1, 1))}
        with pytest.raises(ValueError, match=f"^{function}: Expected more than 1 value"):
            call(function.ours, leaves | row, statistics, training)


MODULES = {
    "linear": lambda: nn.Linear(K, N),
    "linear_scale_leaky_relu": lambda: nn.LinearScaleLeakyReLU(K, N, 2.0, 0.1),
    "linear_scale_batch_norm": lambda: nn.LinearScaleBatchNorm1d(K, N, (N,)),
    "linear_batch_norm_scale_softmax": lambda: nn.LinearBatchNorm1dScaleSoftmax(K, N),
    "batch_norm": lambda: nn.BatchNorm1d(K),
}


@in_train_and_eval
@with_and_without_grad
@pytest.mark.parametrize("name", MODULES)
def test_messages_of_modules_name_the_function(name, training, grad):
    module = MODULES[name]().train(training)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    with torch.set_grad_enabled(grad), pytest.raises(RuntimeError, match=f"^{name}: .* must have"):
        module(torch.randn(M, K + 1))
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_options_are_keyword_only():
    leaves, statistics = make_leaves(BATCH_NORM, torch.float32), make_statistics(torch.float32)
    x, gamma, beta = leaves.values()
    with pytest.raises(TypeError):
        functional.batch_norm(x, *statistics, gamma, beta, True, 0.1, 1e-5, torch.tensor(0))
