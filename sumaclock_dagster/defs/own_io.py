"""An IO manager key of our own for the outputs of checks, which Dagster's decorators give no parameter for it."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from sumaclock_dagster.defs.resources import OWN_IO_KEY

DEFAULT_KEY = "io_manager"


def use_own_io(assets: Iterable[object]) -> None:
    """Let no output of `assets` (assets and checks of ours) need the IO manager of the user. Again changes nothing."""
    for asset in assets:
        if isinstance(asset, dg.AssetsDefinition) and asset.is_executable:
            for output in asset.node_def.output_defs:
                if output.io_manager_key == DEFAULT_KEY:
                    output._io_manager_key = OWN_IO_KEY
