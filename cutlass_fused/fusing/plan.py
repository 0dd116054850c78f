"""What a module's forward becomes: its sites, and the text that calls them."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node
from torch.nn.modules import module as torch_module

from .calls import find_call
from .norms import Norm
from .recorded.chains import is_batch_norm, is_dropout, read_numbers
from .recorded.clones import find_idle_clones
from .recorded.functions import make_functions
from .recorded.products import Product, find_product, is_transpose
from .recorded.recording import Declined, Read, Recording, is_read_missing, record
from .recorded.regions import Growth, Region
from .recorded.texts import Text, list_nodes
from .shorter import make_shorter
from .sites import Site
from .tails import Tail, find_tail

_GLOBAL_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class Left(NamedTuple):
    """A product that stays as it is."""

    where: str
    why: str


class NothingFound(Declined):
    """left: products that stay."""

    def __init__(self, left: list[Left]) -> None:
        super().__init__("it has no linear layer that can be served")
        self.left = left


class Plan(NamedTuple):
    """run: the forward. is_current: whether what it depends on still holds. inlined: ids of the
    Sequentials that it goes through without a call."""

    run: Callable
    is_current: Callable[[], bool]
    sites: list[Site]
    left: list[Left]
    inlined: set[int]


def make_plan(
    module: nn.Module, path: str, precision: str | None, plain: Callable, again: Callable
) -> Plan:
    """plain: the forward of the class. again: what a call does where the plan does not hold.

    Raises Declined, also where nothing can be fused.
    """
    recording = record(module)
    sites, left, placed, reads, norms, tails = _find_sites(recording, path, precision)
    if not sites:
        raise NothingFound(left)
    reads = [*recording.reads, *reads]
    kind = type(module)
    run = _write_forward(module, recording, (placed, norms, tails), reads, plain, again)
    check = Text()
    check.lines.append(f"return not ({_write_guard(check, module, kind, recording, reads)})")
    inlined = set(map(id, recording.inlined))
    return Plan(run, check.make("is_current()", "guard"), sites, left, inlined)


def _find_sites(recording: Recording, path: str, precision: str | None):
    graph, claimed = recording.graph, set()
    sites, left, placed, norms, tails = [], [], {}, {}, {}
    dropouts = [node.meta["module"] for node in graph.nodes if is_dropout(node)]
    # In eval a chain goes on behind one.
    reads = [Read(each.__dict__, "training", each.training) for each in dropouts]
    for node in graph.nodes:
        product = None if node in claimed else find_product(node)
        if product is None:
            continue
        where = f"{path}.{node.target}" if node.op == "call_module" else path or "the model"
        where = where.lstrip(".")
        if isinstance(product, str):
            left.append(Left(where, product))
            continue
        site, region, growth = _make_site(graph, product, claimed, where, precision)
        site.obstacle = growth.obstacle
        claimed |= {*product.nodes, *region.nodes}
        placed[region.output] = site, region
        found = _find_norms(region, site)
        norms |= found
        sites.append(site)
        reads += _list_reads(region)
        for norm in (region.output, *found):
            if is_batch_norm(norm) and _uses_batch(norm.meta["module"]):
                site.tail = find_tail(graph, norm, claimed, where)
        if site.tail is not None:
            tails[site.tail.region.output] = site.tail
            claimed |= {*site.tail.region.nodes}
            reads += _list_reads(site.tail.region)
            if not found:
                site.obstacle = site.tail.obstacle
        # By their modes a chain was cut.
        reads += [Read(n.__dict__, "training", n.training) for n in growth.list_norms()]
    return sites, left, placed, reads, norms, tails


def _find_norms(region: Region, site: Site) -> dict[Node, Norm]:
    """The batch norm that takes the result of a site, in training."""
    found = {}
    for node in region.output.users:
        if is_batch_norm(node) and _uses_batch(node.meta["module"]) and len(node.args) == 1:
            found[node] = Norm(node.meta["module"])
            site.obstacle += "; the batch norm is computed by functional.batch_norm"
    return found


def _make_site(graph: Graph, product: Product, claimed, where: str, precision):
    growth = Growth(graph, product, claimed)
    if precision is None and product.module is not None:
        precision = getattr(product.module, "precision", None)

    def make(region: Region, others: Sequence[Region]) -> Site | None:
        uses_batch = any(is_batch_norm(n) and _uses_batch(n.meta["module"]) for n in region.nodes)
        functions = make_functions(region, uses_batch)
        try:
            call = find_call(region, functions, precision, uses_batch)
        except RuntimeError as refusal:  # none of elements and rows
            growth.obstacle = growth.obstacle or _find_why(refusal)
            return None
        if call is None:
            growth.obstacle = growth.obstacle or "a batch norm in training ends it"
            return None
        find_shorter = functools.partial(make_shorter, region, others, make)
        return Site(where, region, functions, call, precision, find_shorter)

    regions = growth.list_regions()
    for index, region in enumerate(regions):
        site = make(region, regions[index + 1 :])
        if site is not None:
            return site, region, growth
    raise AssertionError("a product alone is always a region")


def _find_why(refusal: Exception) -> str:
    text = str(refusal)
    return text.rpartition(") ")[2] if ") " in text else text


def _uses_batch(norm: nn.BatchNorm1d) -> bool:
    has_none = (
        norm._buffers.get("running_mean") is None and norm._buffers.get("running_var") is None
    )
    return norm.training or has_none


def _list_reads(region: Region) -> list[Read]:
    """Attributes of modules in the chain, which its functions hold as constants."""
    found = []
    for node in region.nodes:
        if node.op != "call_module":
            continue
        module = node.meta["module"]
        if type(module) is nn.BatchNorm1d:
            found += [
                Read(module.__dict__, name, module.__dict__[name]) for name in ("training", "eps")
            ]
            places = (("_parameters", ("weight", "bias")), ("_buffers", ("running_mean",)))
        else:
            found += [Read(*each) for each in read_numbers(module) if each[1] != "training"]
            places = (("_parameters", tuple(module._parameters)),)
        for place, names in places:
            held = module.__dict__[place]
            found += [Read(held, name, None) for name in names if held.get(name) is None]
    return found


def _write_guard(text: Text, module, kind: type, recording: Recording, reads: list[Read]) -> str:
    from .forward import FusedForward  # which reads this file

    owner, cls = text.bind(module), text.bind(kind)
    parts = [f"{owner}.__class__ is not {cls}", f"{cls}.forward is not {text.bind(kind.forward)}"]
    parts += [f"{text.bind(len)}({text.bind(held)}) != {count}" for held, count in recording.counts]
    classes = dict.fromkeys(
        node.meta["module" if node.op == "call_module" else "owner"]
        for node in recording.graph.nodes
        if node.op in ("call_module", "get_attr")
    )
    classes |= dict.fromkeys(recording.inlined)
    parts += [
        f"{text.bind(each)}.__class__ is not {text.bind(type(each))}"
        for each in classes
        if each is not module
    ]
    kinds = text.bind((type(None), FusedForward))
    parts += [
        f"{text.bind(each.__dict__)}.get('forward').__class__ not in {kinds}"
        for each in recording.inlined
    ]
    # A branch may ask whether a parameter is there.
    parts += [
        f"{text.bind(node.meta['place'])}.get({node.meta['name']!r}, ...) is None"
        for node in recording.graph.nodes
        if node.op == "get_attr"
    ]
    for read in reads:
        held = text.bind(read.place)
        if is_read_missing(read.value):
            parts.append(f"{read.name!r} in {held}")
        else:
            parts.append(f"{held}.get({read.name!r}, ...) is not {_bind(text, read.value)}")
    return " or ".join(dict.fromkeys(parts))


def _is_literal(value) -> bool:
    return value is None or isinstance(value, bool)


def _bind(text: Text, value) -> str:
    """By identity: a number that was assigned anew counts as another."""
    if _is_literal(value):
        return repr(value)
    name = text.name("k", len(text.globals))
    text.globals[name] = value
    return name


def _write_forward(module, recording: Recording, found, reads, plain, again) -> Callable:
    text = Text([*recording.required, *recording.defaults])
    kinds, is_one = _bind(text, Tensor), text.bind(isinstance)
    given = ", ".join([*recording.required, *(f"{name}={name}" for name in recording.defaults)])
    to_plain, to_again = f"{_bind(text, plain)}({given})", f"{_bind(text, again)}({given})"
    hooks = [getattr(torch_module, f"_global{place}") for place in _GLOBAL_HOOKS]
    text.lines.append(f"if {' or '.join(text.bind(each) for each in hooks)}: return {to_plain}")
    others = [f"not {is_one}({name}, {kinds})" for name in recording.required]
    others += [f"{name} is not {_bind(text, v)}" for name, v in recording.defaults.items()]
    text.lines.append(f"if {' or '.join(others)}: return {to_plain}")
    guard = _write_guard(text, module, type(module), recording, reads)
    text.lines.append(f"if {guard}: return {to_again}")
    _write_nodes(text, recording.graph, *found)
    header = [
        *recording.required,
        *(f"{n}={_bind(text, v)}" for n, v in recording.defaults.items()),
    ]
    return text.make(f"forward({', '.join(header)})", "fused forward")


def _write_nodes(
    text: Text, graph: Graph, placed: dict, norms: dict[Node, Norm], tails: dict[Node, Tail]
) -> None:
    skipped = {
        node for _, region in placed.values() for node in (*region.product.nodes, *region.nodes)
    }
    skipped |= {node for tail in tails.values() for node in tail.region.nodes}
    idle = find_idle_clones(graph, skipped)
    lines: list[tuple[Node, str, tuple[Node, ...]]] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            text.names[node] = node.target
        elif node in placed:
            site, region = placed[node]
            product = region.product
            given = [product.x]
            given += [each for each in (product.weight, product.bias) if each is not None]
            given += region.inputs
            lines.append((node, text.bind(site), tuple(given)))
        elif node in tails:
            region = tails[node].region
            given = (region.product.output, *region.inputs)
            lines.append((node, text.bind(tails[node]), given))
        elif node not in skipped:
            lines.append((node, "", tuple(list_nodes((node.args, node.kwargs)))))
    lines = _drop_unused(lines)
    last = {read: index for index, (_, _, given) in enumerate(lines) for read in given}
    for index, (node, site, given) in enumerate(lines):
        if node.op == "output":
            text.lines.append(f"return {text.write(node.args[0])}")
            continue
        if node in norms:
            expression = f"{text.bind(norms[node])}({text.names[given[0]]})"
        elif site:
            expression = f"{site}({', '.join(text.names[each] for each in given)})"
        elif node in idle:
            grad = f"{text.bind(torch.is_grad_enabled)}()"
            expression = f"{text.compute(node)} if {grad} else {text.names[given[0]]}"
        else:
            expression = text.compute(node)
        text.names[node] = text.name("v", index)
        text.lines.append(f"{text.names[node]} = {expression}")
        # As Python frees what a name no longer holds.
        done = [e for e in dict.fromkeys(given) if last[e] == index and e.op != "placeholder"]
        text.lines += [f"{text.names[each]} = None" for each in done]


def _drop_unused(lines: list) -> list:
    """Without attributes that a site reads itself, and views of them."""
    kept, needed = [], set()
    for line in reversed(lines):
        node, _, given = line
        is_free = node.op == "get_attr" or _is_view_of_attribute(node)
        if node in needed or not is_free:
            kept.append(line)
            needed.update(given)
    return kept[::-1]


def _is_view_of_attribute(node: Node) -> bool:
    return node.op in ("call_function", "call_method") and is_transpose(node)
