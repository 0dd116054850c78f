"""Where a call cannot take the whole chain of a site: a shorter chain, and PyTorch's ops behind it.

Which shapes meet in a chain is known in a call only: a result may broadcast to a matrix of another
width, or a function of matrices may be given more dimensions.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .recorded.functions import write_given
from .recorded.regions import Region
from .recorded.texts import Text

if TYPE_CHECKING:
    from .sites import Site


class Shorter:
    """s(x, *given), as the `plain` of the whole region."""

    def __init__(self, site: "Site", region: Region, part: Region) -> None:
        self.site, text = site, Text()
        given = write_given(text, region)
        read = [text.names[part.product.x]]
        weights = (part.product.weight, part.product.bias)
        read += [text.names[each] for each in weights if each is not None]
        read += [text.names[each] for each in part.inputs]
        text.names[part.output] = "v"
        text.lines.append(f"v = {text.bind(site)}({', '.join(read)})")
        inside = set(part.nodes)
        for index, node in enumerate(each for each in region.nodes if each not in inside):
            text.lines.append(f"v{index} = {text.compute(node)}")
            text.names[node] = f"v{index}"
        text.lines.append(f"return {text.names[region.output]}")
        self.run = text.make(f"shorter({', '.join(given)})", "shorter chain")

    def __call__(self, *given):
        return self.run(*given)

    def list_names(self) -> list[str]:
        """What the last call computed at once; nothing where PyTorch's ops did all."""
        last = self.site.last
        if last is None or last.why is None:
            return self.site.names
        return last.instead.list_names() if last.instead is not None else []


def make_shorter(
    region: Region,
    others: Sequence[Region],
    make_site: Callable[[Region, Sequence[Region]], "Site | None"],
) -> Shorter | None:
    """others: regions of the same product behind it in order, of which those within it count."""
    inside = set(region.nodes)
    for index, part in enumerate(others):
        if inside.issuperset(part.nodes) and part.output is not region.output:
            site = make_site(part, others[index + 1 :])
            if site is not None:
                return Shorter(site, region, part)
    return None
