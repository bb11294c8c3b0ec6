"""The program that YARN starts as the driver of a worker: `container.py WORDS…` becomes Python with these words as arguments.

It is a file of its own, which is shipped: it imports nothing but the standard library. The worker's environment is in a file beside it,
since YARN shows the variables of containers. The file stays: the driver may be started again.
"""

import json
import os
import sys
from pathlib import Path

ENVIRONMENT = "scribengin-environment.json"
SPARK_MASTER = "SCRIBENGIN_SPARK_MASTER"
EXECUTOR_PYTHON = "SCRIBENGIN_EXECUTOR_PYTHON"
"""the Python of executors, if it is not under the driver's path: each container has unpacked its own"""


def main() -> None:
    """Set the environment, and become the worker. The process stays the same: Spark waits for its end."""
    for name, value in json.loads(Path(ENVIRONMENT).read_text(encoding="utf-8")).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


if __name__ == "__main__":
    main()
