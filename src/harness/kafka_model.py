"""The commit protocol of the Kafka sink: its steps, what each step depends on, and what goes wrong without it. It is checked by visiting
all states. `connectors.kafka.sink_unit` implements it on executors, `connectors.kafka.sink` in the driver; decision 0013 describes what a
Batch of several units needs in addition.

Run `python -m harness.kafka_model` to check the protocol and to see how every mutant fails; `--full` also checks it with three attempts of
a Batch (a few minutes); `--mutant NAME` shows how one mutant fails.

# The protocol

A *unit* commits by itself: it is one task's part of a Batch. It has one `transactional.id`, made of installation, flow, sink and unit, and
of nothing else: no lineage, no Batch, no Term, no attempt. So every attempt of every Batch of every driver uses the same name at the same
coordinator, and only the last one that registered can write. The *markers* of the unit are records in a partition of their own. A marker
contains the lineage, the number of the Batch, the hash of its input, and the complete Receipt.

An attempt of the unit's task for Batch N takes these steps, in this order:

1. **New producer, fence.** Each attempt creates a new producer and calls `init_transactions`. The broker waits until a commit that has
   begun is complete, aborts an open transaction, and raises the epoch. From then on everything that an older producer sends is refused,
   however late it arrives.
2. **Read the newest marker**, with `read_committed`, up to the last stable offset. There are three cases:
   - It is the marker of this Batch (lineage, number and hash are equal): nothing is written; the Receipt in it is the result.
   - It is that of the *predecessor*: of the unit's last Batch before N in this lineage or, for its first Batch, exactly the marker that was
     the newest when the lineage was opened (none, if there was none). Continue. In the model this is always Batch N-1. If a unit without
     rows gets no task, its last Batch is older: the driver tells the task which one, from the decisions.
   - It is any other marker: stop, and write nothing. Another writer has continued from the predecessor.
3. **Write** the rows, and then the marker with the Receipt, in one transaction. They go to two partitions and may arrive in any order.
4. **Commit**, after both are acknowledged. With an answer, the Receipt goes to the driver. Without an answer, call `commit_transaction` of
   the same producer again, or let the attempt fail: the next attempt begins at step 1, and step 2 shows the outcome. There is no other way.
5. **Refused** at step 3 or 4, because the epoch is old: do not fence again. Read the marker repeatedly, without a fence. If it is that of
   this Batch, its Receipt is the result; if it is neither this Batch's nor the predecessor's, stop; otherwise wait, up to a time limit, and
   then fail. Only an *existing* marker is conclusive here: the absence of a marker is conclusive only after a fence.

A driver writes its decision from the Receipt, and only then begins Batch N+1. A restarted driver continues after the last decision. A
driver that has lost its checkpoint *opens* a new lineage: it fences, reads the newest marker, and begins with the input that follows that
marker (or refuses to begin). That marker is the predecessor of its first Batch, and its attempts carry it with them.

# What the steps depend on: each of these mutants was refuted

| if | then | mutant |
|---|---|---|
| the marker is read before the fence | a commit may happen in between: duplicated | `read_before_fence` |
| `init_transactions` did not wait for the end of a commit | the marker is read too early: duplicated | `fence_overtakes_commit` |
| the partitions accepted rows of an older epoch | they become part of the successor's transaction: duplicated | `old_epoch_accepted` |
| the id contains the attempt | the fence affects no other attempt: duplicated | `id_names_attempt` |
| a producer is used for several attempts and Batches | a retry has no fence, and reads too early: duplicated | `one_session` |
| the marker is written before the transaction | a Receipt for rows that were aborted: lost | `marker_before_transaction` |
| the marker is written after the transaction | a crash in between: duplicated | `marker_after_transaction` |
| the marker is read up to the high watermark | a Receipt from an aborted transaction: lost | `high_watermark` |
| a commit without an answer is taken for a failed one | duplicated | `lost_answer_is_no_commit` |
| then the marker is read first, but without a fence | the commit becomes visible after the reading: duplicated | `readback_without_fence` |
| only the number of the Batch is compared | another lineage's Receipt for other input: lost | `number_only` |
| another lineage's marker is ignored | what the old driver commits meanwhile is written again: duplicated | `foreign_marker_is_none` |
| a refused attempt fences again | nothing is lost or duplicated, but two attempts refuse each other forever | `fenced_fences_again` |

Two of these depend on the broker: `fence_overtakes_commit` and `old_epoch_accepted`. According to KIP-98, `init_transactions` must be
repeated (CONCURRENT_TRANSACTIONS) until the older transaction is complete, and the control record of an abort brings the new epoch to each
partition that the older one has written to. A test with a real broker should confirm both.

Safety does not depend on the fence of an *opening* (`opening_without_fence` keeps every promise), because each attempt fences by itself and
compares with the predecessor; that fence only avoids an opening that would be refused at once. Terms are not compared here: nothing depends
on them. A sink that compares them too refuses more, and ends the competition of two drivers sooner.

# The model

There are two drivers that both believe that they run the query, and two attempts of the unit's task for each of two Batches; each can start
again without limit. The attempts of a Batch that its driver has left continue. Every process may be suspended at any step, because no
process has to move, and may die at any step. Requests may be delayed without limit, and those to different brokers may arrive in any order.
An answer may be lost (a commit that the client then sends again is, for everything else, an answer that arrives late). The coordinator may
abort an open transaction at any time and raise the epoch. A commit is decided at once, and becomes visible in the partition of the markers
some time later. Each attempt has its own rows (steps may be random), so the rows of two attempts of one Batch are different.

States that no later step distinguishes are treated as one (`KafkaModel` lists them; tests compare with a search without that).

*Safety*, in every state: readers see the rows of Batch 1 once and from one attempt, then those of Batch 2; a driver continues only with a
Receipt that names exactly the committed rows. *Liveness*: from every state a path leads to the end without a further fault; and if no task
is started again, there is no endless sequence of steps (a competition for the epoch always ends).

Left out: Batches in which the unit has no part, more than one unit (units share only the decision), failures of the coordinator itself,
epochs that overflow, a partition that loses acknowledged records. Aborts are complete at once: while their control record is missing, no
earlier record is readable.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from harness.kafka_steps import KafkaModel
from harness.model_search import SearchReport, search


@dataclass(frozen=True, slots=True)
class Mutant:
    """A protocol with one rule broken, and the bound within which it fails: drivers, attempts of a Batch, Batches."""

    about: str
    drivers: int = 1
    attempts: int = 1
    batches: int = 1
    new_lineage: bool = False

    def model(self, name: str) -> KafkaModel:
        """The model of the mutant with that name."""
        return KafkaModel(drivers=self.drivers, attempts=self.attempts, batches=self.batches, new_lineage=self.new_lineage, mutant=name)


MUTANTS = {
    "read_before_fence": Mutant("the marker is read before the fence"),
    "marker_before_transaction": Mutant("the marker is written by itself, before the rows' transaction commits"),
    "marker_after_transaction": Mutant("the marker is written by itself, after the rows' transaction"),
    "one_session": Mutant("a driver's attempts share one producer, for all Batches"),
    "readback_without_fence": Mutant(
        "without an answer to its commit an attempt reads the marker without a fence, and believes that there is none"
    ),
    "lost_answer_is_no_commit": Mutant("without an answer to its commit an attempt writes again"),
    "id_names_attempt": Mutant("the transactional.id contains the attempt", attempts=2),
    "number_only": Mutant("of a marker only the Batch's number is compared", 2, 1, 2, new_lineage=True),
    "foreign_marker_is_none": Mutant("another lineage's marker is taken for none", 2, 1, 2, new_lineage=True),
    "fenced_fences_again": Mutant("a refused attempt fences again", attempts=2),
    "high_watermark": Mutant("the marker is read up to the high watermark"),
    "fence_overtakes_commit": Mutant("the broker answers init_transactions before a commit is complete", attempts=2),
    "old_epoch_accepted": Mutant("the broker takes rows of an older epoch", attempts=2),
}
"""name → mutant, for those that must fail"""

SPARE = {"opening_without_fence": Mutant("a new lineage is opened without a fence", 2, 1, 2, new_lineage=True)}
"""the same for rules that can be broken without harm"""

_SAID = {
    "begins": "{a} begins",
    "fences": "{a}: init_transactions arrives; what was open is aborted, every older producer is fenced",
    "fences only": "{a}: init_transactions arrives; what was open is aborted, every older producer is fenced; it does not read again",
    "reads: write": "{a} reads the newest marker: its Batch is still to be written; it sends",
    "reads: done": "{a} reads the newest marker: takes it for its own Batch's, and its Receipt for the answer",
    "reads: stop": "{a} reads the newest marker: someone else has gone on; it stops",
    "believes": "{a} reads the newest marker without having fenced, and believes that its Batch is not committed",
    "arrives R": "{a}: its rows arrive",
    "arrives M": "{a}: its marker arrives",
    "arrives C": "{a}: its commit arrives; the transaction is committed, and {a} has its Receipt",
    "refused R": "{a}: its rows arrive, and are refused: it is fenced",
    "refused M": "{a}: its marker arrives, and is refused: it is fenced",
    "refused C": "{a}: its commit arrives, and is refused: it is fenced",
    "unsure": "{a} has no answer to its commit, which is still on the way",
    "answer lost": "{a}: its commit arrives; the transaction is committed, but the answer is lost",
    "late commit": "{a}: its old commit arrives late; the transaction is committed",
    "late refused": "{a}: its old commit arrives late, and is refused",
    "crashes": "{a} dies",
    "gives up": "{a} has waited for its time, and fails",
    "takes": "{a}: its Receipt comes to driver {d}, which decides and goes on",
    "completes": "the broker: the control record of the commit is written; its marker can be read now",
    "times out": "the broker: the open transaction has come to its time-out, and is aborted",
    "opens": "driver B has lost its checkpoint, and opens a new lineage",
    "opening fences": "driver B: init_transactions arrives; every older producer is fenced",
    "opening reads": "driver B reads the newest marker, and will begin behind it",
    "opens again": "driver B finds a marker of the old lineage behind its opening, and opens again",
    "driver restarts": "driver {d} dies, and goes on behind the last decision",
}
_OF_DRIVERS = {"opens", "opening fences", "opening reads", "opens again", "driver restarts"}


def story(model: KafkaModel, report: SearchReport) -> list[str]:
    """The steps to a violation, one per line. `A1b` is the second attempt of driver A for Batch 1."""
    lines = []
    for nth, (_, code, who) in enumerate(report.trace):
        if report.cycle and nth == len(report.trace) - report.cycle:
            lines.append("and from here round and round:")
        of_driver = code in _OF_DRIVERS
        driver = who if of_driver else model.places[who][0]
        text = _SAID[code].format(a="" if of_driver else model.name(who), d="AB"[driver])
        lines.append(f"{nth + 1:3}. {text}")
    return [*lines, f"     => {report.broken}"]


def _protocol(attempts: int) -> bool:
    """Check the correct protocol with that number of attempts of a Batch, and print a line for each variant; returns whether all hold."""
    right = True
    for new_lineage in (False, True):
        begun = time.perf_counter()
        model = KafkaModel(attempts=attempts, new_lineage=new_lineage)
        report = search(model)
        bound = f"2 drivers x {attempts} attempts x 2 Batches{', checkpoint lost' if new_lineage else ''}"
        took = f"{report.states} states, the farthest after {report.depth} steps, {time.perf_counter() - begun:.1f} s"
        print(f"{bound}: {report.broken or 'every promise holds'}; {took}", flush=True)
        if report.broken:
            print("\n".join(story(model, report)))
            right = False
    return right


def main(arguments: list[str] | None = None) -> int:
    """Check the protocol and all mutants. Returns 0 if the protocol keeps its promises and every mutant breaks one, else 1."""
    parser = argparse.ArgumentParser(prog="python -m harness.kafka_model", description="Check the Kafka sink's commit protocol.")
    parser.add_argument("--full", action="store_true", help="also with three attempts of a Batch (a few minutes)")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="tell how this one fails")
    asked = parser.parse_args(arguments)
    right = True
    for attempts in () if asked.mutant else (2, 3) if asked.full else (2,):
        right = _protocol(attempts) and right
    for name, mutant in MUTANTS.items():
        if asked.mutant in (None, name):
            model = mutant.model(name)
            report = search(model)
            print(f"\n{name}: {mutant.about}; {report.states} states seen")
            print("\n".join(story(model, report)) if report.broken else "     NOT REFUTED")
            right = right and bool(report.broken)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
