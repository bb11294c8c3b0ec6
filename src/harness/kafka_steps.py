"""The states and steps of the Kafka sink's commit protocol. Read `kafka_model` first, which describes their meaning.

A driver is 0 or 1; an attempt has an index, by driver, Batch and slot; the rows of an attempt have its index. An attempt's state is a word:

```
-          not running                     I      its init_transactions is on the way
F          has fenced, and will read        0RM    stage 0: the requests R (rows) and M (marker) are on the way
1C         its commit is on the way        W      fenced; waits for the marker
T, T3      has a Receipt: of the rows that count, or of those that attempt 3 has written
B, J       only in mutants: will read without a fence, will fence without reading; with a C: its old commit is still on the way
```

A process that dies while its request is on the way has no word of its own: it does the same as a slow process that dies later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kafka_state import NOBODY, SETTLED, ModelDriver, ModelMarker, ModelTransaction, State, put, settled
from harness.model_search import FAULT, REPAIR, STEP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.model_search import Label

    Step = tuple[Label, "State | str"]

_UNOPENED, _FENCING, _FENCED = 0, -1, -2


class KafkaModel:
    """The protocol within a bound, correct or with one `mutant` rule.

    `new_lineage`: driver 1 has lost its checkpoint. Two reductions are never used for mutants. `folded` identifies states that differ only
    in the names of a Batch's attempts. `merged` identifies an attempt whose epoch is old with one that waits already: it may still have
    requests on the way, but they will be refused, and no other step distinguishes the two.
    """

    def __init__(
        self,
        *,
        drivers: int = 2,
        attempts: int = 2,
        batches: int = 2,
        new_lineage: bool = False,
        mutant: str = "",
        merged: bool = True,
        folded: bool = True,
    ) -> None:
        self.drivers, self.batches, self.new_lineage, self.mutant = drivers, batches, new_lineage, mutant
        self.places = [(d, p) for d in range(drivers) for p in range(1, batches + 1) for _ in range(attempts)]
        self._stages = {"marker_before_transaction": ("M", "R", "C"), "marker_after_transaction": ("R", "C", "M")}.get(mutant, ("RM", "C"))
        self._plain_marker = len(self._stages) == 3
        self._shared = mutant == "one_session"
        self._ids = len(self.places) if mutant == "id_names_attempt" else 1
        self._high = mutant == "high_watermark"
        self._merged, self._folded = merged and not mutant, folded and not mutant and attempts > 1
        self._slots = attempts

    def initial(self) -> State:
        """The first state: nothing is written, and every driver is at the first Batch, except one that has lost its checkpoint."""
        drivers = tuple(ModelDriver(_UNOPENED if self.new_lineage and d == 1 else 1, 0, 0) for d in range(self.drivers))
        return State((ModelTransaction(),) * self._ids, (), (), ("-",) * len(self.places), drivers)

    def goal(self, state: State) -> bool:
        """True if all Batches are committed and a driver has recorded it."""
        return len(state.log) == self.batches and any(driver.decided == self.batches for driver in state.drivers)

    def successors(self, state: State) -> Iterator[Step]:
        """All steps that are possible in a state, those of the shortest stories first."""
        for a, word in enumerate(state.attempts):
            match word[0]:
                case "-":
                    yield from self._begin(state, a)
                case "I":
                    yield from self._fence(state, a, "F")
                    yield self._crash(state, a)
                case "F":
                    yield self._read(state, a)
                    yield self._crash(state, a)
                case "0" | "1" | "2":
                    for request in word[1:]:
                        yield from self._deliver(state, a, request)
                    if word[1:] == "C" and self.mutant in _UNSURE:
                        yield (FAULT, "unsure", a), self._with(state, a, _UNSURE[self.mutant] + "C")
                    yield self._crash(state, a)
                case "W":
                    yield from self._wait(state, a)
                    yield (REPAIR, "gives up", a), self._with(state, a, "-")
                case "T":
                    yield from self._take(state, a)
                    yield self._crash(state, a)
                case "B":
                    yield from self._read_unfenced(state, a)
                case _:
                    yield from self._fence(state, a, "0" + self._stages[0])
            if word in ("BC", "JC"):
                yield from self._deliver_late(state, a)
        yield from self._broker(state)
        for d in range(self.drivers):
            yield from self._driver(state, d)

    # --- attempts ---

    def _begin(self, state: State, a: int) -> Iterator[Step]:
        d, place = self.places[a]
        if state.drivers[d].at == place:
            word = "I"
            if self.mutant == "read_before_fence":
                word = "B"
            elif self._shared and state.transactions[0].owner == d:
                word = "F"
            yield (REPAIR, "begins", a), self._with(state, a, word)

    def _fence(self, state: State, a: int, then: str) -> Iterator[Step]:
        """init_transactions arrives: it waits for the end of a commit, aborts an open transaction, and takes the epoch."""
        if not state.transactions[self._id(a)].ending or self.mutant == "fence_overtakes_commit":
            aborted = self._abort(state, self._id(a), self._who(a))
            yield (STEP, "fences" if then == "F" else "fences only", a), self._with(aborted, a, then)

    def _read(self, state: State, a: int) -> Step:
        own = state.transactions[self._id(a)]
        if self._shared and own.owner == self._who(a) and (own.rows or own.markers):
            state = self._abort(state, 0, self._who(a))  # the client gives up its older transaction before it begins another one
        found = self._verdict(state, a)
        if found == "write":
            return (STEP, "reads: write", a), self._with(state, a, "0" + self._stages[0])
        if found == "stop":
            return (STEP, "reads: stop", a), self._with(state, a, "-")
        return (STEP, "reads: done", a), self._with(state, a, found)

    def _read_unfenced(self, state: State, a: int) -> Iterator[Step]:
        found = self._verdict(state, a)
        late = state.attempts[a][1:]
        if found == "write":
            yield (STEP, "believes", a), self._with(state, a, "J" + late)
        elif found == "stop":
            yield (STEP, "reads: stop", a), self._with(state, a, "-")
        else:
            yield (STEP, "reads: done", a), self._with(state, a, found)

    def _wait(self, state: State, a: int) -> Iterator[Step]:
        found = self._verdict(state, a)
        if found == "stop":
            yield (STEP, "reads: stop", a), self._with(state, a, "-")
        elif found != "write":
            yield (STEP, "reads: done", a), self._with(state, a, found)

    def _deliver(self, state: State, a: int, request: str) -> Iterator[Step]:
        """One request of a living attempt arrives."""
        after = self._arrive(state, a, request)
        if after is None:
            word = "I" if self.mutant == "fenced_fences_again" else "W"
            yield (STEP, f"refused {request}", a), self._with(state, a, word)
        elif after is not state:
            word = state.attempts[a].replace(request, "")
            if len(word) == 1:
                stage = int(word) + 1
                word = f"{stage}{self._stages[stage]}" if stage < len(self._stages) else f"T{a}"
            yield (STEP, f"arrives {request}", a), self._with(after, a, word)
            if request == "C":
                yield (FAULT, "answer lost", a), self._with(after, a, _UNSURE.get(self.mutant, "-"))

    def _deliver_late(self, state: State, a: int) -> Iterator[Step]:
        """The commit arrives of an attempt that has continued without its answer."""
        after = self._arrive(state, a, "C")
        if after is not state:
            code = "late refused" if after is None else "late commit"
            yield (STEP, code, a), self._with(after or state, a, state.attempts[a][0])

    def _arrive(self, state: State, a: int, request: str) -> State | None:
        """The state after a request arrives; None if it is refused because of a newer epoch; the same state if it must wait for the end of
        a commit."""
        if request == "M" and self._plain_marker:
            return state._replace(markers=(*state.markers, self._marker(state, a)))
        at = self._id(a)
        own = state.transactions[at]
        accepted = own.owner == self._who(a) or (request == "R" and self.mutant == "old_epoch_accepted" and own.owner >= 0)
        if not accepted or (request == "C" and not own.rows and not own.markers and not own.ending):
            return None
        if own.ending:
            return state
        log = state.log
        if request == "R":
            own = own._replace(rows=(*own.rows, a))
        elif request == "M":
            own = own._replace(markers=(*own.markers, self._marker(state, a)))
        else:
            log = (*log, *((self.places[row][1], row) for row in own.rows))
            own = ModelTransaction(own.owner, (), (), own.markers)
        return state._replace(transactions=put(state.transactions, at, own), log=log)

    def _crash(self, state: State, a: int) -> Step:
        return (FAULT, "crashes", a), self._with(state, a, "-")

    def _take(self, state: State, a: int) -> Iterator[Step]:
        """The driver receives the write receipt, writes its decision and continues."""
        d, place = self.places[a]
        if state.drivers[d].at != place:
            return
        word = state.attempts[a]
        rows = [whose for where, whose in state.log if where == place]
        if rows != [int(word[1:] or SETTLED)]:
            there = "nobody" if not rows else " and ".join("attempt " + self.name(row) if row >= 0 else "another attempt" for row in rows)
            told = "attempt " + self.name(int(word[1:])) if word[1:] else "another attempt"
            text = f"the driver goes on with a Receipt for the rows of {told}, where the rows of {there} are committed"
            yield (STEP, "takes", a), text
            return
        drivers = list(state.drivers)
        drivers[d] = drivers[d]._replace(at=place + 1)
        for each, driver in enumerate(drivers):
            if each == d or not self.new_lineage:
                drivers[each] = driver._replace(decided=max(driver.decided, place))
        yield (STEP, "takes", a), self._normal(state._replace(drivers=tuple(drivers)))

    def _marker(self, state: State, a: int) -> ModelMarker:
        d, place = self.places[a]
        return ModelMarker(self._lineage(d), place - state.drivers[d].start, place, a)

    def _verdict(self, state: State, a: int) -> str:
        """What an attempt does after it has read the newest marker: `write`, `stop`, or it is done: the word `T…` with the attempt whose
        rows the write receipt names."""
        newest = self._newest(state)
        d, place = self.places[a]
        start = state.drivers[d].start
        lineage, number = self._lineage(d), place - start
        if newest is None:
            return "write" if place == 1 else "stop"
        done = "T" if newest.rows == SETTLED else f"T{newest.rows}"
        if self.mutant == "number_only":
            return done if newest.number == number else "write" if newest.number == number - 1 else "stop"
        if newest[:3] == (lineage, number, place):
            return done
        if self.mutant == "foreign_marker_is_none" and newest.lineage != lineage:
            return "write"
        if number < 1:
            return "stop"  # it was started under an opening that has been given up
        before = (lineage, number - 1, place - 1) if number > 1 else (0, start, start)
        return "write" if newest[:3] == before else "stop"

    def _newest(self, state: State) -> ModelMarker | None:
        """The newest marker below the last stable offset. With a single id, an open transaction hides no older marker."""
        if self._high:
            for own in state.transactions:
                if own.markers or own.ending:
                    return (own.markers or own.ending)[-1]
        return state.markers[-1] if state.markers else None

    # --- the broker by itself ---

    def _broker(self, state: State) -> Iterator[Step]:
        for at, own in enumerate(state.transactions):
            if own.ending:
                after = state._replace(
                    transactions=put(state.transactions, at, own._replace(ending=())), markers=(*state.markers, *own.ending)
                )
                yield (STEP, "completes", at), self._normal(after)
            elif own.rows or own.markers or (own.owner >= 0 and not self._shared and state.attempts[own.owner][0] in "012"):
                yield (FAULT, "times out", at), self._normal(self._abort(state, at, NOBODY))

    def _abort(self, state: State, at: int, owner: int) -> State:
        own = state.transactions[at]
        markers = state.markers
        if self._high:
            markers = (*markers, *own.markers)  # a reader beyond the last stable offset sees aborted markers
        turned = ModelTransaction(owner, ending=own.ending)
        return state._replace(transactions=put(state.transactions, at, turned), markers=markers)

    # --- drivers ---

    def _driver(self, state: State, d: int) -> Iterator[Step]:
        driver = state.drivers[d]
        newest = self._newest(state)
        opening = _FENCED if self.mutant == "opening_without_fence" else _FENCING
        if driver.at == _UNOPENED:
            yield (REPAIR, "opens", d), self._moved(state, d, driver._replace(at=opening))
        elif driver.at == _FENCING:
            if not state.transactions[0].ending:
                after = self._abort(state, 0, NOBODY)
                yield (STEP, "opening fences", d), self._moved(after, d, driver._replace(at=_FENCED))
        elif driver.at == _FENCED:
            start = newest.place if newest else 0
            yield (STEP, "opening reads", d), self._moved(state, d, ModelDriver(start + 1, start, start))
        elif self.new_lineage and d == 1 and newest and newest.lineage == 0 and newest.place > driver.start:
            yield (REPAIR, "opens again", d), self._moved(state, d, driver._replace(at=opening))
        elif driver.at != driver.decided + 1:
            yield (REPAIR, "driver restarts", d), self._moved(state, d, driver._replace(at=driver.decided + 1))

    def _moved(self, state: State, d: int, driver: ModelDriver) -> State:
        return self._normal(state._replace(drivers=(*state.drivers[:d], driver, *state.drivers[d + 1 :])))

    # --- names and normal forms ---

    def name(self, a: int) -> str:
        """The name of an attempt, such as `A1a`: driver A, Batch 1, first attempt."""
        d, place = self.places[a]
        return f"{'AB'[d]}{place}{'abc'[self.places[:a].count((d, place))]}"

    def _lineage(self, d: int) -> int:
        return d if self.new_lineage else 0

    def _id(self, a: int) -> int:
        return a if self._ids > 1 else 0

    def _who(self, a: int) -> int:
        return self.places[a][0] if self._shared else a

    def _with(self, state: State, a: int, word: str) -> State | str:
        attempts = state.attempts
        return self._checked(state._replace(attempts=(*attempts[:a], word, *attempts[a + 1 :])))

    def _checked(self, state: State) -> State | str:
        places = [place for place, _ in state.log]
        if places != list(range(1, len(places) + 1)):
            rows = ", ".join(f"Batch {place}" + (f" by {self.name(whose)}" if whose >= 0 else "") for place, whose in state.log)
            return f"readers see the rows of {rows}"
        return self._normal(state)

    def _normal(self, state: State) -> State:
        """The same state without details that make no difference any more."""
        transactions, log, markers, attempts, drivers = state
        for place, whose in log if any(whose >= 0 for _, whose in log) else ():
            told = [m for m in (*markers, *(m for t in transactions for m in t.ending)) if (m.place, m.rows) == (place, whose)]
            if whose >= 0 and told:
                log = tuple((p, SETTLED if (p, w) == (place, whose) else w) for p, w in log)
                markers = settled(markers, told)
                transactions = tuple(t._replace(ending=settled(t.ending, told)) for t in transactions)
                attempts = tuple("T" if word == f"T{whose}" and self.places[a][1] == place else word for a, word in enumerate(attempts))
        if any(word[0] == "T" and drivers[self.places[a][0]].at != self.places[a][1] for a, word in enumerate(attempts)):
            attempts = tuple(
                "-" if word[0] == "T" and drivers[self.places[a][0]].at != self.places[a][1] else word for a, word in enumerate(attempts)
            )
        if self._merged:
            owner = transactions[0].owner
            attempts = tuple(word if word in _QUIET or a == owner else "W" for a, word in enumerate(attempts))
            attempts = tuple(
                "-" if word == "W" and drivers[self.places[a][0]].at != self.places[a][1] else word for a, word in enumerate(attempts)
            )
        state = State(transactions, log, markers, attempts, drivers)
        if not self._shared:
            for at, own in enumerate(transactions):
                if own.owner >= 0 and not _can_send(attempts[own.owner]):
                    state = self._abort(state, at, NOBODY)
        return self._fold(state) if self._folded else state

    def _fold(self, state: State) -> State:
        """The attempts of each Batch of each driver, ordered by their words."""
        own = state.transactions[0]
        words = state.attempts
        order: list[int] = []
        for first in range(0, len(words), self._slots):
            order += sorted(range(first, first + self._slots), key=lambda a: (words[a], a == own.owner))
        if order == sorted(order):
            return state
        now = {old: new for new, old in enumerate(order)} | {NOBODY: NOBODY}
        turned = ModelTransaction(
            now[own.owner], tuple(now[row] for row in own.rows), tuple(m._replace(rows=now[m.rows]) for m in own.markers), own.ending
        )
        return state._replace(transactions=(turned,), attempts=tuple(words[old] for old in order))


_QUIET = ("-", "I", "W", "T")
_UNSURE = {"readback_without_fence": "B", "lost_answer_is_no_commit": "J"}
"""mutants that continue by themselves after a lost answer to a commit → the word of their next state"""


def _can_send(word: str) -> bool:
    """True if an attempt may still send a request under its epoch."""
    return word[0] in "F012" or "C" in word
