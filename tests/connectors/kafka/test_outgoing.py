"""Messages on their way: what is told of a batch of them as a whole."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scribengin.connectors.kafka.outgoing import Outgoing

places = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 2**31 - 1) | st.integers(0, 2))


@given(st.lists(places, max_size=30))
def test_the_first_and_the_last_message_of_each_partition_are_known_and_how_many_there_are(of: list[tuple[str, int]]) -> None:
    partitions = np.array([partition for _, partition in of], np.int32)
    outgoing = Outgoing([topic for topic, _ in of], partitions, [None] * len(of), [b""] * len(of), [0] * len(of), None, {})
    expected: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, place in enumerate(of):
        expected[place].append(index)
    assert outgoing.spread() == {place: (indexes[0], indexes[-1], len(indexes)) for place, indexes in expected.items()}
