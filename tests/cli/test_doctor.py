"""`scribengin doctor` looks at what a person has installed."""

from __future__ import annotations

import json
import subprocess
import sys


def test_doctor_sends_rows_through_spark_with_nothing_but_what_the_install_brings() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "scribengin.cli", "doctor", "--spark", "--json"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    checks = {each["check"]: each for each in json.loads(ended.stdout)["result"]["checks"]}
    assert checks["Spark"]["state"] == "ok"
    assert checks["Spark"]["found"].startswith("1000 rows")
    assert "Spark sessions kept" in checks["warm"]["found"]
