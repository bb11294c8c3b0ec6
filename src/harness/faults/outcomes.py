"""What is to be struck, and the outcome."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Aim:
    """A way to strike (see `cells.PLACES`), and a point."""

    way: str
    point: str

    def __str__(self) -> str:
        return f"{self.way}@{self.point}"


@dataclass(frozen=True, slots=True)
class Life:
    """A flow, and the aims of its strikes, in order."""

    kind: str
    format: str
    partitioned: bool
    aims: tuple[Aim, ...]

    def __str__(self) -> str:
        return f"{self.kind} {self.format}{' partitioned' if self.partitioned else ''}: {' '.join(map(str, self.aims))}"


@dataclass(slots=True)
class LifeOutcome:
    """The outcome of a life. `wrong` lists the failures of the life as a whole."""

    life: Life
    seed: int
    reached: list[bool] = field(default_factory=list)
    """for each aim, whether its strike was made"""
    schedule: list[str] = field(default_factory=list)
    """one entry for each start"""
    wrong: list[str] = field(default_factory=list)
    skipped: str = ""
    rows: int = 0
    looks: int = 0
    recovery_s: float = 0.0
    """seconds of the last start, from the start of the process to its end, including recovery"""
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """The verdict: passed, failed, skipped, or not reached."""
        if self.wrong:
            return "failed"
        return "skipped" if self.skipped else "passed" if any(self.reached) else "not reached"

    @property
    def covered(self) -> list[Aim]:
        """The aims that this life has covered: its strikes were made, and did no harm."""
        if self.wrong:
            return []
        return [aim for aim, reached in zip(self.life.aims, self.reached, strict=True) if reached or self.skipped]
