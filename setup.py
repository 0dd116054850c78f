"""setuptools' commands over the build in src/build_system. Metadata is in pyproject.toml.

CUTLASS_FUSED_ARCHS         architectures, as "8.0;9.0a"; else this machine's GPUs, else that list
CUTLASS_FUSED_SKIP_KERNELS  1: install the Python package alone, for the CPU
CUTLASS_PATH                a CUTLASS checkout; else third_party/cutlass, else nvidia-cutlass
CUDA_HOME, CUDA_PATH        the CUDA toolkit; else nvcc on PATH, from pip, or in /usr/local/cuda
CXX                         the host compiler, also nvcc's; else g++
MAX_JOBS                    compilers at once; else as many as cores and memory allow
CUTLASS_FUSED_CLOCK         1: time a compiler beside the build, as `make build` does
CUTLASS_FUSED_LOCAL_VERSION what stands behind the version's "+": "cu13"; without kernels "cpu"
CUTLASS_FUSED_OP_NAMESPACE  that of the ops in torch.ops; else cutlass_fused
CUTLASS_FUSED_MANYLINUX     1: for other machines, as `make wheel` does
CUTLASS_FUSED_REPOSITORY    the repository's address on the web, for the links of the package's page
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
CHECKOUT_PACKAGE = ROOT / "cutlass_fused"
MOST_BYTES = 95 << 20  # of a wheel
sys.path.insert(0, str(ROOT / "src"))

from build_system import fail, library  # noqa: E402
from build_system.missing_packages import skip_kernels  # noqa: E402
from build_system.paths import COMMON_KERNELS, PACKAGE, SWITCH  # noqa: E402
from build_system.wheel import is_for_other_machines, metadata, op_namespace, symbols  # noqa: E402


class BuildPackage(build_py):
    """Copies the Python package, without what earlier builds have copied: setuptools would ship a
    module that has been deleted since."""

    def run(self):
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib, PACKAGE), ignore_errors=True)
        super().run()
        if not self.editable_mode:
            op_namespace.write_file(Path(self.build_lib, PACKAGE))


class BuildLibrary(build_ext):
    """Builds the shared libraries in place of a Python extension module."""

    def get_ext_filename(self, fullname):
        return fullname.replace(".", "/") + ".so"

    def build_extension(self, ext):
        built = library.build()
        # Into the wheel, and into the checkout: Python imports the package of the folder that it
        # runs in, so `pip install .` and then a demo from here must find the libraries here too.
        # Those of another namespace are for elsewhere.
        folders = {Path(self.get_ext_fullpath(ext.name)).resolve().parent}
        if op_namespace.choose_namespace() == op_namespace.USUAL:
            folders.add(CHECKOUT_PACKAGE)
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            # What an earlier build has left there, and this one has not made.
            for path in (SWITCH, COMMON_KERNELS):
                (folder / path.name).unlink(missing_ok=True)
            for path in built:
                self.copy_file(str(path), str(folder / path.name))
            op_namespace.write_file(folder)


class BuildWheel(bdist_wheel):
    """One wheel for every Python 3: the library has no Python symbol."""

    def get_tag(self):
        *_, platform = tag = super().get_tag()
        if self.root_is_pure:
            return tag
        if is_for_other_machines():
            libraries = Path(self.bdist_dir, PACKAGE).glob("*.so")
            platform = symbols.find_tag(libraries, os.uname().machine)
        return "py3", "none", platform

    def run(self):
        super().run()
        for *_, wheel in self.distribution.dist_files:
            size = Path(wheel).stat().st_size
            if size > MOST_BYTES:
                fail(f"{wheel} has {size} bytes", f"package indexes take {MOST_BYTES} at most")


setup(
    version=metadata.read_version(is_source="sdist" in sys.argv),
    long_description=metadata.write_page(),
    long_description_content_type="text/markdown",
    project_urls=metadata.list_urls(),
    ext_modules=[] if skip_kernels() else [Extension("cutlass_fused.libcutlass_fused", sources=[])],
    cmdclass={"build_py": BuildPackage, "build_ext": BuildLibrary, "bdist_wheel": BuildWheel},
)
