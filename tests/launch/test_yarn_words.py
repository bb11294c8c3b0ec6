"""What YARN's own words become in the reason of a worker that does not run; the words are from a real YARN 3.5.0."""

from __future__ import annotations

import pytest

from scribengin.launch.yarn import _waiting, submission_fault


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "[Sat Nov 28 23:30:11 +0000 2026] Application is added to the scheduler and is not yet activated. Queue's AM resource limit "
            "exceeded.  Details : AM Partition = <DEFAULT_PARTITION>;\n",
            "waits for room in its queue: Application is added to the scheduler and is not yet activated. Queue's AM resource limit "
            "exceeded; free resources there, use another queue (--yarn-queue), or request less",
        ),
        (
            "Application is Activated, waiting for resources to be assigned for AM.  Details : AM Partition = <DEFAULT_PARTITION> ; ",
            "waits for room in its queue: Application is Activated, waiting for resources to be assigned for AM; free resources there, "
            "use another queue (--yarn-queue), or request less",
        ),
        (
            "AM container is launched, waiting for AM container to Register with RM",
            "AM container is launched, waiting for AM container to Register with RM",
        ),
        ("", ""),
    ],
)
def test_a_worker_that_waits_for_room_says_what_to_do(said: str, reason: str) -> None:
    assert _waiting(said) == reason


def test_a_label_that_the_queue_may_not_use_is_told() -> None:
    said = (
        'Exception in thread "main" org.apache.hadoop.yarn.exceptions.InvalidLabelResourceRequestException: Invalid resource request, '
        "queue=default doesn't have permission to access all labels in resource request. labelExpression of resource "
        "request=no-such-label. Queue labels=fast"
    )
    assert submission_fault(said) == (
        "the queue default may not use the node label no-such-label; use another label (spark.yarn.am.nodeLabelExpression, "
        "spark.yarn.executor.nodeLabelExpression) or queue, or have the rights given"
    )
