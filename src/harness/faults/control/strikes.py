"""What a life under strikes has told: its strikes, their recoveries, what must not be."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Struck:
    """One strike."""

    way: str
    about: str = ""
    """how just this one was done"""
    silent_s: dict[str, float] = field(default_factory=dict)
    """flow → the longest time, from the strike until all ran again, in which nothing new of it could be seen"""
    running_s: float | None = None
    """from the strike until the control plane said of all flows that they run, and all had committed after what was done was mended; None
    where that never came"""
    person: list[str] = field(default_factory=list)
    """flows that waited for a person, and why"""

    def __str__(self) -> str:
        silent = ", ".join(f"{flow} {took:.1f} s" for flow, took in self.silent_s.items())
        running = "never" if self.running_s is None else f"{self.running_s:.1f} s"
        needed = f"; resumed: {'; '.join(self.person)}" if self.person else ""
        return f"{self.way} ({self.about}): silent: {silent}; all runs after {running}{needed}"


@dataclass(slots=True)
class LifeTold:
    """A life: what it was to meet, what it met, and what is wrong with it."""

    ways: tuple[str, ...]
    seed: int
    kafka: bool = False
    strikes: list[Struck] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    skipped: str = ""
    rows: int = 0
    workers: int = 0
    """started in all"""
    seconds: float = 0.0
    flat: list[str] = field(default_factory=list)
    """of a soak: how each figure went"""

    @property
    def verdict(self) -> str:
        """passed, failed or skipped"""
        return "failed" if self.wrong else "skipped" if self.skipped else "passed"

    def __str__(self) -> str:
        return f"{'with a chain over Kafka' if self.kafka else 'a file flow'}: {' '.join(self.ways)}"
