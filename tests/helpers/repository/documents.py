"""The documents: their texts, and the blocks of code in them."""

import re
import textwrap

from build_system.paths import ROOT

FOLDERS = ("bench", "cutlass_fused", "docs", "examples", "include", "src", "tests", "third_party")
CHECKOUT = ROOT / "third_party/cutlass"  # of CUTLASS, if there is one: not ours


def list_files(pattern):
    """The files of the repository in the top folder and in those below; not what is built."""
    paths = list(ROOT.glob(pattern))
    for folder in FOLDERS:
        paths += (ROOT / folder).rglob(pattern)
    return sorted(path for path in paths if path.is_file() and CHECKOUT not in path.parents)


TEXTS = {str(path.relative_to(ROOT)): path.read_text() for path in list_files("*.md")}
README, CONTRIBUTING, BUILDING = (
    TEXTS[name] for name in ("README.md", "CONTRIBUTING.md", "src/README.md")
)
PAGES = {name: text for name, text in TEXTS.items() if name.startswith("docs/")}
RECIPES = "\n".join(
    TEXTS[f"include/cutlass_fused/{folder}/README.md"] for folder in ("epilogue", "gemm", "norm")
)
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


def list_blocks(text, language):
    """The fenced blocks of one language, without the indentation of the list they stand in."""
    return [textwrap.dedent(block) for _, found, block in BLOCK.findall(text) if found == language]


def remove_blocks(text):
    """Prose and tables."""
    return BLOCK.sub("", text)
