"""The modules beside the tests can be imported by their names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
