"""What a worker's process must not spend its start on."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from sumaclock_dagster.definitions import definitions
definitions()
print("slow:", sorted({'pandas', 'numpy', 'matplotlib', 'httpx', 'prometheus_client'} & set(sys.modules)))
"""


def test_a_code_location_loads_without_what_only_reports_and_deliveries_need() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["slow: []"], done.stderr
