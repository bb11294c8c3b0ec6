"""The result of a life under strikes: its strikes, their recoveries, and what was wrong."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Struck:
    """One strike."""

    way: str
    about: str = ""
    """details of this strike"""
    silent_s: dict[str, float] = field(default_factory=dict)
    """flow → the longest time without new output, in seconds, from the strike until all flows ran again"""
    running_s: float | None = None
    """seconds from the strike until the control plane reported all flows as running and all had committed after the repair; None if that
    did not happen"""
    person: list[str] = field(default_factory=list)
    """the flows that needed intervention, and why"""

    def __str__(self) -> str:
        silent = "silent: " + ", ".join(f"{flow} {took:.1f} s" for flow, took in self.silent_s.items()) + "; " if self.silent_s else ""
        running = "never" if self.running_s is None else f"{self.running_s:.1f} s"
        needed = f"; resumed: {'; '.join(self.person)}" if self.person else ""
        return f"{self.way} ({self.about}): {silent}all runs after {running}{needed}"


@dataclass(slots=True)
class LifeTold:
    """The result of a life: the planned ways, the actual strikes, and what was wrong."""

    ways: tuple[str, ...]
    seed: int
    kafka: bool = False
    strikes: list[Struck] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    skipped: str = ""
    rows: int = 0
    workers: int = 0
    """the number of workers that were started"""
    seconds: float = 0.0
    flat: list[str] = field(default_factory=list)
    """the trend of each figure, for a soak"""
    about: str = ""
    """what the life is made of, if not only `kafka` says it"""

    @property
    def verdict(self) -> str:
        """passed, failed or skipped"""
        return "failed" if self.wrong else "skipped" if self.skipped else "passed"

    def __str__(self) -> str:
        return f"{self.about or ('with a chain over Kafka' if self.kafka else 'a file flow')}: {' '.join(self.ways)}"
