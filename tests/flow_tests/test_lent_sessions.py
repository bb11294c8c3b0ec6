from __future__ import annotations

import pytest

from scribengin.core.errors import EnvironmentFault
from scribengin.flow_tests.session import check_lent
from scribengin.spark.session import PRESET


def test_a_session_that_gives_other_rows_than_a_run_is_refused() -> None:
    check_lent(PRESET.__getitem__)
    with pytest.raises(EnvironmentFault, match=r"timeZone is Europe/Berlin, spark\.sql\.caseSensitive is false") as refused:
        check_lent((PRESET | {"spark.sql.session.timeZone": "Europe/Berlin", "spark.sql.caseSensitive": "false"}).__getitem__)
    assert '.config("spark.sql.session.timeZone", "UTC").config("spark.sql.caseSensitive", "true")' in refused.value.remedy
