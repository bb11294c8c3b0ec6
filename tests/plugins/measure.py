"""`python -m tests.plugins.measure REPORT.xml…`: writes slow.txt, the tests that `make test` leaves out for the time they take.

The reports are pytest's own, of all tests: `make test ARGS=--junitxml=A.xml`, and the same of `make test-rest`. Write the list anew if
`make test` takes too long.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

SLOW = Path(__file__).with_name("slow.txt")
LIMIT_S = 3.0
"""of a test with all its parameters, in a run that shared two cores with other work: some 2 s alone"""
KEPT = (
    "connectors/kafka/test_flows.py::",
    "control/test_up.py::",
    "docs/test_pages.py::",
    "docs/test_tutorial.py::",
    "end_to_end/tiers/test_running.py::",
    "hosts/test_bindings.py::",
    "spark/test_stateless_steps.py::",
    "worker/test_fenced.py::",
)
"""one or a few of each floor stay in `make test`, whatever they take"""


def slow_tests(*reports: Path) -> list[str]:
    """`file::test`, below the folder `tests`, sorted."""
    took_s: Counter[str] = Counter()
    for case in (case for report in reports for case in ElementTree.parse(report).getroot().iter("testcase")):
        name = re.sub(r"\[.*", "", case.get("name", ""), flags=re.DOTALL)
        place = re.sub(r"\.Test\w+$", "", case.get("classname", ""))  # without the class
        file = place.removeprefix("tests.").replace(".", "/")
        took_s[f"{file}.py::{name}"] += float(case.get("time", 0))
    return sorted(test for test, seconds in took_s.items() if seconds > LIMIT_S and not test.startswith(KEPT))


if __name__ == "__main__":
    SLOW.write_text("".join(f"{test}\n" for test in slow_tests(*map(Path, sys.argv[1:]))))
