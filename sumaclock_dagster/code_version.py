"""A fingerprint of the code that a worker executes, so that workers of older code can be told from new ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "sumaclock_dagster"
DISTRIBUTION = "sumaclock-dagster"
COUNTED = (".py", ".sql")


def code_version(handlers_spec: str) -> str:
    """Version and hash of this package and of the packages that `handlers_spec` ("package.module:attribute, ...")
    names, for example "0.1.0-1a2b3c4d5e6f".

    The same files give the same text in every process and wherever they are installed. A handler's whole top-level
    package counts, since a handler is rarely one file. An entry that cannot be found counts with its name alone:
    whoever loads the handlers reports it.
    """
    digest = hashlib.sha256()
    for package in sorted({PACKAGE, *_packages(handlers_spec)}):
        digest.update(f"{package}\0".encode())
        for name, file in sorted(_files(package)):
            content = file.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
    return f"{_released()}-{digest.hexdigest()[:12]}"


def _packages(handlers_spec: str) -> set[str]:
    modules = (part.strip().partition(":")[0] for part in handlers_spec.split(","))
    return {module.partition(".")[0] for module in modules if module}


def _files(package: str) -> Iterator[tuple[str, Path]]:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        if spec.origin and Path(spec.origin).is_file():
            yield Path(spec.origin).name, Path(spec.origin)
        return
    for folder in map(Path, spec.submodule_search_locations):
        for file in folder.rglob("*"):
            if file.suffix in COUNTED and file.is_file():
                yield file.relative_to(folder).as_posix(), file


def _released() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0"
