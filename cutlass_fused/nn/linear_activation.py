"""LinearActivation."""

import torch
from torch import Tensor
from torch.fx import Proxy

from .. import functional
from ..functional._arguments import is_autocast_enabled
from ..functional._other_layouts import STRIDED
from ..precision import Precision, check_precision
from ._activations import Activation, compose, is_prelu, make_epilogues, take_activation
from ._parts import (
    HOLDERS,
    call_as_leaf,
    check_linear,
    check_parameters,
    describe_precision,
    find_precision,
    has_hooks,
    is_foreign,
    read_module,
    read_operands,
    unpack_sequential,
)
from ._script import refuse_script


class LinearActivation(torch.nn.Linear):
    """y = activation(x @ weight.T + bias): torch.nn.Linear and what follows it, in one call.

    Its state dict is that of a torch.nn.Linear; beside a PReLU it has `activation.weight` too.

    Args:
        in_features, out_features, bias, device, dtype: as of torch.nn.Linear.
        activation: a name: "identity", "relu", "leaky_relu", "prelu", "gelu", "gelu_tanh", "silu",
            "sigmoid", "tanh", "clamp", "hardtanh", "hardswish", "mish", "softplus" or "elu"; or a
            torch.nn.PReLU, which is held; or another module that has no parameters and no buffers,
            such as torch.nn.GELU(); or a function of elements, such as torch.nn.functional.silu,
            as cutlass_fused.epilogue takes it.
        precision: "ieee", "tf32", or None to follow PyTorch's own setting; see
            cutlass_fused.functional.linear_epilogue, which also tells shapes, dtypes, numerics and
            errors.
        numbers: those of a name, by PyTorch's names and with its defaults: negative_slope of
            "leaky_relu", min and max of "clamp", min_val and max_val of "hardtanh", beta and
            threshold of "softplus", alpha of "elu", num_parameters and init of "prelu".

    The result has the dtype of x, and under autocast that of the plain model. An activation with
    hooks is called as it is behind the product. So is one that replaces this and has parameters,
    a PReLU of several parameters where x is no matrix, and any where x is sparse or nested.

    Raises TypeError for an activation or numbers of another kind, ValueError for an unknown name or
    precision; and at the first call RuntimeError for a function that is none of elements.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        activation: Activation,
        bias: bool = True,
        *,
        precision: Precision | None = None,
        device=None,
        dtype=None,
        **numbers: float,
    ) -> None:
        check_precision(precision, "LinearActivation")
        held, numbers = take_activation("LinearActivation", activation, numbers, device, dtype)
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.precision, self.activation, self.numbers = precision, held, numbers
        self._made = held, *make_epilogues(held)

    @classmethod
    def from_eager(
        cls,
        linear: "torch.nn.Linear | torch.nn.Sequential",
        activation: Activation | None = None,
        *,
        precision: Precision | None = None,
        **numbers: float,
    ) -> "LinearActivation":
        """A module that shares the Parameters of `linear` and takes over its training mode.

        A Sequential of a Linear and an activation gives both parts. A torch.nn.PReLU is held
        itself. A Linear of this package gives its precision where none is given.

        Raises TypeError where `linear` is no torch.nn.Linear, or has another forward, hooks, or a
        weight that is no Parameter, as under a parametrization; otherwise as the constructor does.
        """
        name = "LinearActivation"
        kinds = (torch.nn.Linear, torch.nn.Module)
        if activation is None and (parts := unpack_sequential(name, linear, kinds)):
            linear, activation = parts
        check_linear(name, linear)
        check_parameters(name, "linear", linear)
        like = linear.weight
        held, numbers = take_activation(name, activation, numbers, like.device, like.dtype)
        module = cls(
            linear.in_features,
            linear.out_features,
            held,
            linear.bias is not None,
            precision=find_precision(precision, linear),
            device="meta",
            **numbers,
        )
        module.weight, module.bias = linear.weight, linear.bias
        return module.train(linear.training)

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as the constructor does."""
        super().reset_parameters()
        activation = self._modules.get("activation")  # none yet within the constructor
        if hasattr(activation, "reset_parameters"):
            activation.reset_parameters()

    __prepare_scriptable__ = refuse_script

    def __getstate__(self) -> dict:
        """Without the programs: a copy makes its own."""
        return {key: value for key, value in self.__dict__.items() if key != "_made"}

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        activation = read_module(self, "activation")
        self._made = activation, *make_epilogues(activation)

    def forward(self, input: Tensor) -> Tensor:
        if isinstance(input, Proxy):
            return call_as_leaf(self, input)
        weight, bias, split = read_operands(self, self.precision)
        activation = read_module(self, "activation")
        if is_foreign(weight):
            z = torch.nn.functional.linear(input, weight, bias)
            return compose(activation, self.numbers, z)
        options = {"precision": self.precision, "weight_split": split}
        epilogue = self._find_epilogue(activation, input)
        if epilogue is None:
            z = functional.linear(input, weight, bias, **options)
            return compose(activation, self.numbers, z)
        if isinstance(input, Tensor):
            bias, options["out_dtype"] = _find_dtypes(input, bias, activation)
        operands = self.numbers if bias is None else {"bias": bias} | self.numbers
        if is_prelu(activation):
            options["slope"] = activation.weight
        return epilogue(input, weight, **options, **operands)

    def _find_epilogue(self, activation: Activation, x):
        """What computes the whole call; None where the activation is called behind the product."""
        is_trained = False
        if isinstance(x, Tensor) and x.layout is not STRIDED:
            return None
        if isinstance(activation, torch.nn.Module):
            # To PyTorch the second of all dimensions is that of the parameters.
            is_matrix = isinstance(x, Tensor) and x.dim() == 2
            if is_prelu(activation) and not is_matrix and activation.weight.numel() > 1:
                return None
            if has_hooks(activation):
                return None
            is_trained = activation.training
        if self._made[0] is not activation:  # another has taken its place
            self._made = activation, *make_epilogues(activation)
        return self._made[2 if is_trained else 1]

    def extra_repr(self) -> str:
        text = super().extra_repr()
        activation = read_module(self, "activation")
        if not isinstance(activation, torch.nn.Module):  # which is printed by itself
            is_name = isinstance(activation, str)
            name = activation if is_name else getattr(activation, "__name__", repr(activation))
            text += f", activation={name}"
        numbers = "".join(f", {key}={value}" for key, value in self.numbers.items())
        return text + numbers + describe_precision(self.precision)


def _find_dtypes(x: Tensor, bias: Tensor | None, activation: Activation):
    """The bias as autocast hands it over, and the dtype of the result."""
    if not is_autocast_enabled(x) or x.dtype == torch.float64:
        return bias, x.dtype
    dtype = torch.get_autocast_dtype(x.device.type)
    bias = None if bias is None else bias.to(dtype)
    # On a GPU autocast has that computed in fp32.
    is_wide = activation == "softplus" and x.is_cuda
    return bias, torch.float32 if is_wide else dtype


HOLDERS.add(LinearActivation)
