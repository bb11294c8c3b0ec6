from __future__ import annotations

from datetime import UTC, datetime

from scribengin.flow_tests.play import rule_text


def test_what_a_column_is_called_is_no_question_for_the_time() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert rule_text("SELECT ts AS current_date, o.now FROM o", now) == "SELECT ts AS current_date, o.now FROM o"
    assert rule_text("SELECT current_date AS day FROM o", now) == "SELECT DATE'2026-01-02' AS day FROM o"
