"""A Dagster instance of its own on the test cluster: real storage in PostgreSQL."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from sumaclock_dagster.db import connect
from tests.conftest import TestCluster

ROOT = Path(__file__).parent.parent
URL_VARIABLE = "SUMACLOCK_DAGSTER_DATABASE_URL"


@contextmanager
def dagster_home(cluster: TestCluster, name: str) -> Iterator[tuple[Path, str]]:
    """A folder with the dagster.yaml and workspace.yaml that users get, and the URL of a new Dagster database `name`;
    both are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="sumaclock-dagster-"))
    try:
        for file in ("dagster.yaml", "workspace.yaml"):
            shutil.copy(ROOT / file, folder / file)
        with connect(cluster.file.superuser_url, "test create") as conn:
            conn.execute(f'create database "{name}" owner sumaclock_dagster')
        yield folder, cluster.file.dagster_database_url.replace("/sumaclock_dagster?", f"/{name}?")
    finally:
        with connect(cluster.file.superuser_url, "test clean-up") as conn:
            conn.execute(f'drop database if exists "{name}" with (force)')
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def dagster_instance(folder: Path, url: str) -> Iterator[dg.DagsterInstance]:
    """The instance that dagster.yaml in `folder` describes. The variable that it reads is set meanwhile."""
    os.environ[URL_VARIABLE] = url
    try:
        with dg.DagsterInstance.from_config(str(folder)) as instance:
            yield instance
    finally:
        os.environ.pop(URL_VARIABLE, None)
