"""setuptools' build backend, which asks for what compiles the library only where it is compiled:
not for an sdist, nor for the Python package alone."""

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

from ..missing_packages import skip_kernels

# pip: isolation.py has it install what the machine lacks.
COMPILING = ["torch>=2.10", "ninja", "pip"]


def list_compiling() -> list[str]:
    return [] if skip_kernels() else COMPILING


def get_requires_for_build_wheel(config_settings=None):
    return build_meta.get_requires_for_build_wheel(config_settings) + list_compiling()


def get_requires_for_build_editable(config_settings=None):
    return build_meta.get_requires_for_build_editable(config_settings) + list_compiling()
