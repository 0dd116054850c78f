"""What a package tells of itself."""

import email
import re
import runpy
import subprocess
import sys
import zipfile

import pytest
import setuptools
from setuptools.command.bdist_wheel import bdist_wheel

import cutlass_fused
from build_system.cutlass_headers import locate_cutlass
from build_system.paths import ROOT
from build_system.wheel import metadata
from cutlass_fused import _library

ADDRESS = "https://example.org/owner/name"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in ("CUTLASS_FUSED_SKIP_KERNELS", metadata.LOCAL_VERSION, metadata.REPOSITORY):
        monkeypatch.delenv(name, raising=False)


def test_version(monkeypatch):
    public = cutlass_fused.__version__
    assert metadata.read_version() == public
    monkeypatch.setenv(metadata.LOCAL_VERSION, "cu13")
    assert metadata.read_version() == f"{public}+cu13"
    monkeypatch.setenv("CUTLASS_FUSED_SKIP_KERNELS", "1")
    assert metadata.read_version() == f"{public}+cpu"
    assert metadata.read_version(is_source=True) == public


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """That of the CPU, which compiles nothing, with a module in the build folder that is deleted
    from the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    stale = folder / "build/lib/cutlass_fused/deleted.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", folder]
    command += ["build", "--build-base", folder / "build", "bdist_wheel", "--dist-dir", folder]
    environment = {"PATH": "/usr/bin:/bin", "CUTLASS_FUSED_SKIP_KERNELS": "1"}
    environment[metadata.REPOSITORY] = ADDRESS
    command = list(map(str, command))
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def read(wheel, name):
    (path,) = [path for path in wheel.namelist() if path.endswith(f".dist-info/{name}")]
    return wheel.read(path).decode()


def test_a_wheel_that_indexes_do_not_take_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(setuptools, "setup", lambda **words: None)
    command = runpy.run_path(str(ROOT / "setup.py"))["BuildWheel"](setuptools.Distribution())
    monkeypatch.setattr(bdist_wheel, "run", lambda self: None)
    wheel = tmp_path / "a.whl"
    command.distribution.dist_files = [("bdist_wheel", "any", str(wheel))]
    for size in (95 << 20, (95 << 20) + 1):
        with open(wheel, "wb") as file:
            file.truncate(size)
        if size == 95 << 20:
            command.run()
        else:
            with pytest.raises(SystemExit, match=f"has {size} bytes"):
                command.run()


def test_deleted_module_is_not_in_the_next_wheel(wheel):
    names = wheel.namelist()
    assert "cutlass_fused/__init__.py" in names and "cutlass_fused/py.typed" in names
    assert "cutlass_fused/deleted.py" not in names


def test_wheel_without_kernels_has_a_name_of_its_own(wheel):
    name = wheel.filename.rpartition("/")[2]
    assert name == f"cutlass_fused-{cutlass_fused.__version__}+cpu-py3-none-any.whl"


def test_both_licences_are_in_the_wheel(wheel):
    assert read(wheel, "licenses/LICENSE") == (ROOT / "LICENSE").read_text()
    theirs = read(wheel, "licenses/third_party/LICENSE.cutlass.txt")
    assert "NVIDIA CORPORATION & AFFILIATES" in theirs and "BSD-3-Clause" in theirs
    root = locate_cutlass()
    if root is None:
        return
    beside = [root / "LICENSE.txt", *root.parents[1].glob("nvidia_cutlass-*/licenses/LICENSE.txt")]
    assert theirs in [path.read_text() for path in beside if path.is_file()]


def test_fields(wheel):
    fields = email.message_from_string(read(wheel, "METADATA"))
    assert fields["License-Expression"] == "BSD-3-Clause"
    classifiers = fields.get_all("Classifier")
    assert "Typing :: Typed" in classifiers and not [c for c in classifiers if "License" in c]
    assert f"Homepage, {ADDRESS}" in fields.get_all("Project-URL")
    links = re.findall(r"\]\(([^)\s]+)\)", fields.get_payload())
    assert f"{ADDRESS}/blob/v{cutlass_fused.__version__}/docs/limits.md" in links
    image = f"{ADDRESS}/raw/v{cutlass_fused.__version__}/bench/results/h200/speedups.png"
    assert image in links
    assert not [link for link in links if "://" not in link]


def test_page_without_an_address_has_no_link_that_breaks():
    page = metadata.write_page()
    links = re.findall(r"\]\(([^)\s]+)\)", page)
    assert links and all(link.startswith("https://") for link in links)
    assert "docs/limits.md" in page and "speedups.png" not in page


def test_code_holds_no_links():
    text = "[a](b.md) [c](#d)\n```python\nf[0](x)\n```\n![e](f.png)\n"
    expected = "[a](u/blob/v1/b.md) [c](#d)\n```python\nf[0](x)\n```\n![e](u/raw/v1/f.png)\n"
    assert metadata.make_absolute(text, "u", "v1") == expected
    assert metadata.make_absolute(text, "", "v1") == "a [c](#d)\n```python\nf[0](x)\n```\n\n"


@pytest.mark.parametrize("version, is_told", [("0.2.0+cpu", True), ("0.2.0", False)])
def test_package_for_the_cpu_says_how_to_install_the_other(monkeypatch, version, is_told):
    monkeypatch.setattr(_library.importlib.metadata, "version", lambda name: version)
    path = _library._FOLDER / "none.so"
    said = _library._load(path)
    assert said.startswith(f"there is no file {path}")
    assert ("CUTLASS_FUSED_SKIP_KERNELS=1; install it without" in said) == is_told
    # A library that a variable names has nothing to do with the package.
    assert _library._load(_library._FOLDER.parent / "none.so").endswith("none.so")


def test_torch_is_the_only_dependency(wheel):
    fields = email.message_from_string(read(wheel, "METADATA"))
    needed = [each for each in fields.get_all("Requires-Dist") if "extra ==" not in each]
    assert needed == ["torch>=2.10"]
