"""What setup.py tells of the package that pyproject.toml cannot: version, page and addresses."""

import os
import re

from ..cuda_toolkit import find_cuda_toolkit
from ..missing_packages import skip_kernels
from ..paths import PACKAGE, ROOT
from . import is_for_other_machines

LOCAL_VERSION = "CUTLASS_FUSED_LOCAL_VERSION"
REPOSITORY = "CUTLASS_FUSED_REPOSITORY"
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def read_version(is_source: bool = False) -> str:
    """That of the sources, "0.2.0", and of a wheel with what tells those of one version apart:
    "0.2.0+cpu" without kernels, so that pip shows what it took from its cache, "0.2.0+cu13" for
    other machines, or "0.2.0+" and what the variable holds."""
    text = (ROOT / PACKAGE / "__init__.py").read_text()
    public = re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE)[1]
    local = "" if is_source else find_local_version()
    return f"{public}+{local}" if local else public


def find_local_version() -> str:
    if skip_kernels():
        return "cpu"
    if is_for_other_machines() and LOCAL_VERSION not in os.environ:
        return f"cu{find_cuda_toolkit().version[0]}"
    return os.environ.get(LOCAL_VERSION, "")


def find_repository() -> str:
    """The address of the repository on the web, "https://github.com/OWNER/NAME"; "" if unknown."""
    return os.environ.get(REPOSITORY, "").rstrip("/")


def list_urls() -> dict[str, str]:
    address = find_repository()
    if not address:
        return {}
    return {
        "Homepage": address,
        "Documentation": f"{address}/tree/main/docs",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def write_page() -> str:
    """README.md for a package index, which has no file beside it: links become those of the tag of
    this version in the repository, or, where that is unknown, plain text."""
    text = (ROOT / "README.md").read_text()
    tag = "v" + read_version().partition("+")[0]
    return make_absolute(text, find_repository(), tag)


def make_absolute(text: str, address: str, tag: str) -> str:
    def replace(link: re.Match) -> str:
        is_image, shown, target = link.groups()
        if re.match(r"[a-z]+:|#", target):
            return link[0]
        if not address:
            return "" if is_image else shown
        return f"{is_image}[{shown}]({address}/{'raw' if is_image else 'blob'}/{tag}/{target})"

    # Brackets in a block of code are no links: every second part is one.
    parts = FENCE.split(text)
    parts[::2] = [LINK.sub(replace, part) for part in parts[::2]]
    return "".join(parts)
