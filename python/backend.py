"""Builds the package with setuptools in a copy of this folder, since setuptools leaves files beside the source."""

import importlib.util
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress

from setuptools import build_meta

build_editable = build_meta.build_editable  # which needs the source in its place


@contextmanager
def _copy():
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(here, os.path.join(folder, "python"))
        os.chdir(copy)
        try:
            yield
        finally:
            os.chdir(here)
            with suppress(OSError):  # what importing this module has left
                os.remove(importlib.util.cache_from_source(os.path.abspath(__file__)))
                os.rmdir(os.path.join(here, "__pycache__"))


def get_requires_for_build_wheel(config_settings=None):
    with _copy():
        return build_meta.get_requires_for_build_wheel(config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    to = os.path.abspath(wheel_directory)
    with _copy():
        return build_meta.build_wheel(to, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    to = os.path.abspath(sdist_directory)
    with _copy():
        return build_meta.build_sdist(to, config_settings)
