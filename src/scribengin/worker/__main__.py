"""`python -m scribengin.worker WORKER`: runs a worker. Its output goes to the launcher's log."""

import sys

from scribengin.core.errors import ScribenginError
from scribengin.worker.process import main

if __name__ == "__main__":
    try:
        status = main(sys.argv[1])
    except ScribenginError as error:
        print(f"{error.message} [{error.code}]\n  {error.remedy}", file=sys.stderr)
        status = error.exit
    sys.exit(int(status))
