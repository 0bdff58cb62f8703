"""The native library: checks that it fits the torch that runs, loads it, and gives its registry.

Importing this module loads the library. Everything that calls an operation of ``torch.ops.torchpairwise`` imports it
first.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

__all__ = ["build_info", "check_torch", "cmake_prefix_path", "describe", "load"]

_PACKAGE = Path(__file__).resolve().parent
_INFO_FILE = _PACKAGE / "_build_info.json"
_LIBRARY_NAMES = ("libtorchpairwise.so", "libtorchpairwise.dylib", "torchpairwise.dll")

# The folder to give to CMake's CMAKE_PREFIX_PATH so that find_package(torchpairwise) finds the C++ package.
cmake_prefix_path = str(_PACKAGE)


def _build_command() -> str:
    """Return the command that builds the library for the torch of this environment."""
    source = _PACKAGE.parent
    if (source / "csrc" / "CMakeLists.txt").exists():
        return f"pip install --no-build-isolation -e {source}"
    return "pip install --no-build-isolation --no-binary torchpairwise --force-reinstall --no-deps torchpairwise"


def build_info() -> dict[str, Any]:
    """Return what was built: version, torch, compiler, instruction sets and CUDA toolkit.

    The record is written by CMake and read from a file, so it is there even when the library itself cannot be loaded.

    Returns:
        A dictionary with the keys ``version``, ``torch``, ``compiler``, ``build_type``, ``instruction_sets`` and
        ``cuda`` (None, or a dictionary with ``toolkit``, ``torch`` and ``kernel_files``).

    Raises:
        ImportError: The library has not been built.

    Example:
        >>> from torchpairwise import _native
        >>> _native.build_info()["version"]
        '0.4.0'
    """
    try:
        info: dict[str, Any] = json.loads(_INFO_FILE.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ImportError(
            f"torchpairwise has not been built: {_INFO_FILE} does not exist. Build it with:\n    {_build_command()}"
        ) from None
    return info


def _base_version(version: str) -> str:
    """Return major.minor.patch of a version such as 2.13.0+cpu."""
    found = re.match(r"\d+\.\d+(\.\d+)?", version)
    return found.group() if found else version


def check_torch(built: dict[str, Any], found_version: str, found_cuda: str | None) -> None:
    """Raise ImportError where a library built as ``built`` says cannot run with the torch that was found.

    C++ interfaces of torch change between releases, so major, minor and patch numbers must be equal; the build after
    the plus sign (cpu, cu130) may differ, except that CUDA kernels need a torch with CUDA.
    """
    wanted = _base_version(built["torch"])
    if _base_version(found_version) != wanted:
        raise ImportError(
            f"torchpairwise was built against torch {built['torch']}, but torch {found_version} is installed. "
            f"Build it again:\n    {_build_command()}\n"
            f"or install the torch it was built against:\n    pip install torch=={wanted}"
        )
    if built["cuda"] is not None and built["cuda"]["kernel_files"] > 0 and found_cuda is None:
        raise ImportError(
            f"torchpairwise was built with CUDA against torch {built['torch']}, but torch {found_version} has no CUDA. "
            f"Build it again:\n    {_build_command()}\nor install a torch with CUDA {built['cuda']['torch']}."
        )


def load() -> None:
    """Check the torch that runs and load the library; loading it again does nothing."""
    check_torch(build_info(), torch.__version__, torch.version.cuda)
    candidates = [_PACKAGE / "lib" / name for name in _LIBRARY_NAMES]
    library = next((path for path in candidates if path.exists()), None)
    if library is None:
        missing = _PACKAGE / "lib"
        raise ImportError(f"The native library is missing from {missing}. Build it with:\n    {_build_command()}")
    torch.ops.load_library(library)


@lru_cache(maxsize=1)
def describe() -> dict[str, Any]:
    """Return the registry of the native library: the one place where names, signatures and formulas are written down.

    Returns:
        A dictionary of lists of records: ``sources``, ``nodes``, ``joins``, ``masks``, ``metrics`` and ``consumers``,
        and ``build``. It is read once and shared; do not change it.

    Example:
        >>> from torchpairwise import _native
        >>> [source["name"] for source in _native.describe()["sources"]]
        ['linear', 'sqeuclidean', 'manhattan']
    """
    registry: dict[str, Any] = json.loads(torch.ops.torchpairwise.describe())
    return registry


load()
