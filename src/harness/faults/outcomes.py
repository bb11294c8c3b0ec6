"""What is to be struck, and how it went."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Aim:
    """A way to strike (one of `cells.PLACES`), and the place."""

    way: str
    point: str

    def __str__(self) -> str:
        return f"{self.way}@{self.point}"


@dataclass(frozen=True, slots=True)
class Life:
    """A flow, and what is to strike it, in this order."""

    kind: str
    format: str
    partitioned: bool
    aims: tuple[Aim, ...]

    def __str__(self) -> str:
        return f"{self.kind} {self.format}{' partitioned' if self.partitioned else ''}: {' '.join(map(str, self.aims))}"


@dataclass(slots=True)
class LifeOutcome:
    """How a life went. `wrong` holds what must not be, of the life as a whole."""

    life: Life
    seed: int
    reached: list[bool] = field(default_factory=list)
    """per aim: did its strike come about?"""
    schedule: list[str] = field(default_factory=list)
    """a start each"""
    wrong: list[str] = field(default_factory=list)
    skipped: str = ""
    rows: int = 0
    looks: int = 0
    recovery_s: float = 0.0
    """the last start, from the process's begin to its end, what was left to do included"""
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """passed, failed, skipped, or not reached"""
        if self.wrong:
            return "failed"
        return "skipped" if self.skipped else "passed" if any(self.reached) else "not reached"

    @property
    def covered(self) -> list[Aim]:
        """What this life has shown to do no harm."""
        if self.wrong:
            return []
        return [aim for aim, reached in zip(self.life.aims, self.reached, strict=True) if reached or self.skipped]
