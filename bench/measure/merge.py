"""python -m bench.measure.merge FOLDER ... --to FOLDER: puts parts of results into whole files.

Several GPUs of one kind may take parts of a suite at the same time, each with a folder of its own.
All must be of one commit, one kind of GPU and one torch; no case may be in two of them, as its
variants are compared with each other. Where one is wrong, nothing is written.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from .results import SUITES, InvalidResult, ResultFile, case_of, list_changes


def merge(folders: Sequence[pathlib.Path], to: pathlib.Path) -> list[ResultFile]:
    """The files that are to be written, each with the rows that are in `to` already.

    Raises InvalidResult if one is no result file, or does not fit to the others.
    """
    files: dict[str, ResultFile] = {}
    origins: dict[tuple, pathlib.Path] = {}
    for path in [folder / f"{suite}.json" for folder in folders for suite in SUITES]:
        if not path.exists():
            continue
        part = ResultFile.read(path)
        whole = files.setdefault(part.suite, ResultFile(to, part.suite, part.meta))
        if changes := list_changes(whole.meta, part.meta):
            raise InvalidResult(f"{path} is none of the others: {', '.join(changes)}")
        for case in {case_of(row) for row in part.rows}:
            if (other := origins.setdefault(case, path)) != path:
                raise InvalidResult(f"{other} and {path} both have {case}")
        whole.put(part.rows)
    if not files:
        raise InvalidResult(f"no result file in {', '.join(map(str, folders))}")
    return list(files.values())


def main(arguments: Sequence[str] | None = None) -> int:
    description = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m bench.measure.merge", description=__doc__, formatter_class=description
    )
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--to", type=pathlib.Path, required=True, help="folder of the whole files")
    options = parser.parse_args(arguments)
    try:
        files = merge(options.folders, options.to)
    except InvalidResult as error:
        print(error, file=sys.stderr)
        return 2
    for file in files:
        file.write()
        print(f"{file.path}: {len(file.rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
