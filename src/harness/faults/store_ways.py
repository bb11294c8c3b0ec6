"""Ways to strike a flow into a store, or from one, from outside the driver: the server is stopped and started again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.faults.kafka_ways import hold_at
from harness.faults.read_table_flows import ReadTableFlow
from harness.faults.store_flows import ServedFlow

if TYPE_CHECKING:
    from harness.faults.outcomes import Aim
    from harness.faults.running import RunningLife


def strike_the_server(life: RunningLife, place: int, aim: Aim) -> None:
    """Kill the server while the driver is at the point, and start it again before the driver continues, or afterwards."""
    assert isinstance(life.flow, ServedFlow | ReadTableFlow)
    driver = hold_at(life, place, aim)
    if driver is None:
        return
    life.flow.server.kill()
    at_once = life.random(place).random() < 0.5
    if at_once:
        driver.release()
    life.flow.server.start()
    driver.release()
    life.note(f"exit {driver.wait()}, the server was away {'when' if at_once else 'before'} the driver went on")
