"""Short names for kernels: demangled, they are up to thousands of characters long."""

import re
from collections.abc import Sequence

LONGEST = 76  # what the longest name of our own kernels takes

# c++filt's and the profiler's spelling of an unnamed namespace.
UNNAMED = ("(anonymous namespace)::", "<unnamed>::")
# (cutlass_fused::DataType)2, (int)128, (bool)1
CAST = re.compile(r"\(([A-Za-z_][\w: ]*)\)(-?\d+)(?![\w(])")
# The enumeration in include/cutlass_fused/common/data_type.hpp, in its order.
DATA_TYPES = ("fp32", "fp16", "bf16")
TYPES = {"float": "fp32", "double": "fp64", "Half": "fp16", "BFloat16": "bf16"}
# The enumeration in include/cutlass_fused/common/piece.cuh, in its order.
ACCESSES = ("aligned", "shifted", "elements", "whole")
# ScheduleSm90 in include/cutlass_fused/gemm/sm90/tiles.hpp, as names of tiles spell it.
SCHEDULES_SM90 = ("cooperative", "pingpong", "single", "split", "splitpair")
# An epilogue behind the scales of split rows: the engine tells that already.
UNSCALED = re.compile(r"\b(?:cutlass_fused::)?Unscaled<([\w:]+)\s*>")
# The profiler writes arguments without their types: how many DataTypes these begin with. The last
# argument, if there are more, is an Access.
LEADING_TYPES = {
    "column_statistics": 1,
    "normalize": 1,
    "normalize_strips": 1,
    "row_softmax": 2,
    "row_softmax_wide": 2,
    "row_softmax_stream": 1,
}
STANDALONE = re.compile(rf"^({'|'.join(LEADING_TYPES)})<(.*)>$")
# sm90_xmma_gemm_..._tilesize128x256x64_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas
XMMA = re.compile(r"(sm\d+_xmma_\w+?)_tilesize(\d+x\d+x\d+)_(\w+)")
# Kernels that do nothing but call their argument.
WRAPPERS = ("Kernel", "Kernel2", "device_kernel")
# Kernels of PyTorch that are told apart by the operator among their arguments.
GENERIC = re.compile(r"(\w*elementwise_kernel\w*|reduce_kernel)<(.*)")
OPERATOR = re.compile(r"\w*[Ff]unctor\w*|\w+Ops\b|\w+_kernel(?:_cuda|_impl)?(?=\()|\w+KernelImpl")
# What adapts an operator: BinaryFunctor<float, float, float, MulFunctor<float>>.
ADAPTERS = re.compile(r"[AB]?(Unary|Binary|Ternary)Functor|gpu_kernel\w*|\w*elementwise_kernel\w*")
OPENING, CLOSING = "<([{", ">)]}"


def shorten_kernel(name: str, longest: int = LONGEST) -> str:
    """What tells a kernel from its neighbours in a profile, in `longest` characters at most.

    Namespaces, parameters and arguments of arguments are left out; a tile of ours is spelled as
    `CUTLASS_FUSED_LOG=1` spells it; PyTorch's generic kernels keep their operator alone.
    """
    text = name.strip().removeprefix("void ")
    for unnamed in UNNAMED:
        text = text.replace(unnamed, "")
    text = UNSCALED.sub(r"\1", _cut_parameters(CAST.sub(_read_cast, text)))
    short = STANDALONE.sub(_name_types, _shorten(text))
    return short if len(short) <= longest else short[: longest - 3] + "..."


def _read_cast(match: re.Match) -> str:
    kind, value = match[1].split("::")[-1], match[2]
    if kind == "bool":
        return "true" if int(value) else "false"
    return _name_value({"DataType": DATA_TYPES, "Access": ACCESSES}.get(kind, ()), value)


def _name_value(names: Sequence[str], word: str) -> str:
    """The name that a number stands for, if it is one that stands for any."""
    return names[int(word)] if word.isdecimal() and int(word) < len(names) else word


def _name_types(match: re.Match) -> str:
    """column_statistics<2, 0> -> column_statistics<bf16, aligned>"""
    words, count = match[2].split(", "), LEADING_TYPES[match[1]]
    types = [_name_value(DATA_TYPES, word) for word in words[:count]]
    whole = match[1].endswith("_stream")
    if len(words) < count + (not whole) or not set(types) <= set(DATA_TYPES):
        return match[0]  # somebody else's kernel
    if whole:
        return f"{match[1]}<{', '.join([*types, *words[count:]])}>"
    *others, access = words[count:]
    return f"{match[1]}<{', '.join([*types, *others, _name_value(ACCESSES, access)])}>"


def _split(text: str, separator: str) -> list[str]:
    """At each separator that stands outside all brackets."""
    parts, start, depth, i = [], 0, 0, 0
    while i < len(text):
        if depth == 0 and text.startswith(separator, i):
            parts.append(text[start:i])
            i += len(separator)
            start = i
            continue
        depth += (text[i] in OPENING) - (text[i] in CLOSING)
        i += 1
    return [part.strip() for part in [*parts, text[start:]]]


def _cut_parameters(text: str) -> str:
    return _split(text, "(")[0]


def _shorten(text: str) -> str:
    if match := XMMA.match(text):
        split_k = "_split_k" if "split_k" in match[3] else ""
        return f"{match[1]}_{match[2]}{split_k}"
    # The part of GemmSm90<...>::Kernel that says something.
    parts = _split(text, "::")
    part = next((part for part in reversed(parts) if part.endswith(">")), parts[-1])
    if match := GENERIC.match(part):
        operators = [word for word in OPERATOR.findall(match[2]) if not ADAPTERS.fullmatch(word)]
        return f"{match[1]}<{operators[0]}>" if operators else match[1]
    base, arguments = _read_template(part)
    if base in WRAPPERS and arguments:
        return _shorten(arguments[0])
    if not arguments:
        return base
    return f"{base}<{', '.join(_shorten_argument(argument) for argument in arguments)}>"


def _read_template(text: str) -> tuple[str, list[str]]:
    """f<a, b> as f and [a, b]"""
    base, bracket, rest = text.partition("<")
    return base, _split(rest.removesuffix(">"), ",") if bracket else []


def _shorten_argument(text: str) -> str:
    base, arguments = _read_template(_split(text, "::")[-1])
    if base == "TileSm80" and len(arguments) > 3:
        m, n, bytes_k, *_, schedule = arguments
        return f"{m}x{n}x{bytes_k}B" + (".streamk" if schedule == "1" else "")
    if base == "TileSm90" and len(arguments) == 8:
        m, n, bytes_k, cluster_m, cluster_n, schedule, operands, output = arguments
        return (
            f"{m}x{n}x{bytes_k}B/{cluster_m}x{cluster_n}.{_name_value(SCHEDULES_SM90, schedule)}"
            + (".swapped" if operands == "1" else "")
            + {"1": ".direct", "2": ".rows"}.get(output, "")
        )
    if base == "ClusterBlock" and len(arguments) == 5:
        dtype, width, lanes, _, pieces = arguments
        place = "shared memory" if pieces == "0" else "registers"
        return f"{_name_value(DATA_TYPES, dtype)}, {int(width) * int(lanes)} columns in {place}"
    if base in ("InRegisters", "NormalizationBy") and arguments:
        return _shorten_argument(arguments[0])
    return TYPES.get(base, base)
