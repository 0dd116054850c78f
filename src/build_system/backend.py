"""setuptools' build backend, which in an isolated build also asks for the packages that stand in
for a missing nvcc or missing CUTLASS headers."""

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

from .missing_packages import missing_packages


def get_requires_for_build_wheel(config_settings=None):
    return build_meta.get_requires_for_build_wheel(config_settings) + missing_packages()


def get_requires_for_build_editable(config_settings=None):
    return build_meta.get_requires_for_build_editable(config_settings) + missing_packages()
