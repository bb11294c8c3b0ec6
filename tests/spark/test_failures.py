"""What Spark says is told whole, with what to do."""

from __future__ import annotations

from scribengin.spark.failures import classify, is_data_error

UPGRADE = (
    "[INCONSISTENT_BEHAVIOR_CROSS_VERSION.{}] You may get a different result due to the upgrading to Spark >= 3.0:\n{}\n"
    '1) You can set "spark.sql.legacy.timeParserPolicy" to "LEGACY" to restore the behavior before Spark 3.0.\n'
)


def test_the_cause_below_the_first_line_is_told_and_the_remedy_names_a_pattern_that_works() -> None:
    error = RuntimeError(UPGRADE.format("DATETIME_PATTERN_RECOGNITION", "Fail to recognize 'EEE MMM' pattern in the DateTimeFormatter."))
    fault, fate = classify(error)
    assert fault.message.endswith("Spark >= 3.0: Fail to recognize 'EEE MMM' pattern in the DateTimeFormatter.")
    assert "'MMM dd HH:mm:ss Z yyyy'" in fault.remedy
    assert fate == "permanent"
    assert not is_data_error(error)


def test_a_text_that_only_the_old_parser_takes_costs_its_record() -> None:
    assert is_data_error(RuntimeError(UPGRADE.format("PARSE_DATETIME_BY_NEW_PARSER", "Fail to parse 'Wed Oct' in the new parser.")))
