"""The commit protocol of the Kafka sink: what it is, what each step rests on, what goes wrong without it. Checked by visiting all states.
`connectors.kafka.sink_unit` holds to it on executors, `connectors.kafka.sink` in the driver; decision 0013 says what a Batch of several
units needs besides.

Run `python -m harness.kafka_model` to check the protocol and to read how every mutant fails; `--full` checks it with three
attempts of a Batch, too (a few minutes); `--mutant NAME` tells one story.

# The protocol

A *unit* is what commits by itself: one task's part of a Batch. It has one `transactional.id`, made of installation, flow, sink and unit.
Nothing else is in it: no lineage, no Batch, no Term, no attempt. Every attempt of every Batch of every driver therefore meets at the same
coordinator under the same name, and of all of them only the one that came last can write. The unit's *markers* are records in a partition
of their own. A marker holds the lineage, the Batch's number, the hash of its input, and the whole Receipt.

An attempt of the unit's task for Batch N does this, in this order:

1. **New producer, fence.** A new producer for every attempt; `init_transactions`. The broker waits until a commit that it has begun is
   complete, aborts what is open, and raises the epoch. From then on whatever an older producer sends is refused, however late it comes.
2. **Read the newest marker**, `read_committed`, up to the last stable offset. Three answers:
   - It is this Batch's (lineage, number and hash are equal): nothing is written; the Receipt in it is the answer.
   - It is the *predecessor's*: that of the unit's last Batch before N in this lineage, or, for its first one, just the marker that was
     the newest when the lineage was opened (none, if there was none). Go on. In the model that is always Batch N-1. Where a unit without
     rows gets no task, its last Batch is older: the driver tells the task which one, from the decisions.
   - It is anything else: stop, and write nothing. Someone else has gone on from where this chain stands.
3. **Write** the rows, and last the marker with the Receipt, in one transaction. They go to two partitions and may arrive in any order.
4. **Commit**, when both are acknowledged. An answer: the Receipt goes to the driver. No answer: call `commit_transaction` of the same
   producer again, or let the attempt fail. The next one begins at step 1, and step 2 tells it how it ended. There is no third way.
5. **Refused** at 3 or 4, because the epoch is old: do not fence again. Read the marker now and then, without a fence. If it is this
   Batch's, its Receipt is the answer; if it is neither this one's nor the predecessor's, stop; else wait, until a time limit, and then
   fail. Only a marker that is *there* may be believed here: to believe that there is none, one must have fenced.

A driver writes its decision from the Receipt, and only then turns to Batch N+1. A restarted driver goes on behind the last decision. A
driver that has lost its checkpoint *opens* a new lineage: it fences, reads the newest marker, and begins with the input that follows
there (or refuses to begin). That marker is the predecessor of its first Batch; its attempts carry it with them.

# What the steps rest on, and what was refuted without them

| if | then | mutant |
|---|---|---|
| the marker is read before the fence | a commit gets in between: doubled | `read_before_fence` |
| `init_transactions` did not wait for the end of a commit | the marker is read too early: doubled | `fence_overtakes_commit` |
| the partitions took rows of an older epoch | they get into the successor's transaction: doubled | `old_epoch_accepted` |
| the id contains the attempt | the fence meets nobody: doubled | `id_names_attempt` |
| a producer lives on over attempts and Batches | a retry has no fence, and reads before the commit is complete: doubled | `one_session` |
| the marker is written before the transaction | a Receipt for rows that were aborted: lost | `marker_before_transaction` |
| the marker is written after the transaction | a crash between the two: doubled | `marker_after_transaction` |
| the marker is read up to the high watermark | a Receipt out of an aborted transaction: lost | `high_watermark` |
| no answer to a commit is taken for no commit | doubled | `lost_answer_is_no_commit` |
| after it the marker is read first, but without a fence | the commit comes behind the reading: doubled | `readback_without_fence` |
| only the Batch's number is compared | another lineage's Receipt for other input: lost | `number_only` |
| another lineage's marker is taken for none | what the old driver commits meanwhile comes again: doubled | `foreign_marker_is_none` |
| a refused attempt fences again | nothing is lost or doubled, but two attempts refuse each other for ever | `fenced_fences_again` |

Two of these are facts in the broker's hands: `fence_overtakes_commit` and `old_epoch_accepted`. As KIP-98 has it, `init_transactions` is
told to come again (CONCURRENT_TRANSACTIONS) until the older transaction is complete, and the control record of an abort brings the new
epoch to each partition that the older one has touched. A test against a real broker should see both.

Not needed for safety: the fence of an *opening* (`opening_without_fence` keeps every promise), because each attempt fences by itself and
compares with the predecessor; it only spares an opening that would be refused at once. Terms are in no comparison here: nothing rests on
them. A sink that compares them too refuses more, and ends a rivalry sooner.

# The model

Two drivers that both believe they run the query, two attempts of the unit's task for each of two Batches; each can begin again without
end. The attempts of a Batch that its driver has left live on. Whoever is not dead can sleep at any step, since nobody has to move; any
process dies at any step; requests arrive as late as they like, those for different brokers in any order; an answer is lost (a commit
that the client then sends again is, to everyone else, an answer that comes late); the coordinator aborts an open transaction at any
moment and raises the epoch. A commit is decided at once and shows up in the markers' partition some time later. An attempt's rows are
its own (steps may be random), so the rows of two attempts of one Batch are two things.

States that no step of anybody can tell apart are taken for one (`KafkaModel` says which; the tests compare with what is seen without).

*Safety*, in every state: readers see Batch 1's rows once and from one attempt, then Batch 2's; a driver goes on only with a Receipt that
names just the rows which are committed. *Liveness*: from every state a way leads to the end without a further fault; and where no task
is begun anew, no endless sequence of steps exists (nobody needs luck to leave a fight over the epoch).

Left out: Batches in which the unit has no part, more than one unit (units share nothing but the decision), the coordinator's own failures,
epochs that run over, a partition that loses acknowledged records. Aborts are complete at once: while their control record is missing,
nothing that stands before it counts.
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
    """One rule broken, and the bound within which that shows: drivers, attempts of a Batch, Batches."""

    about: str
    drivers: int = 1
    attempts: int = 1
    batches: int = 1
    new_lineage: bool = False

    def model(self, name: str) -> KafkaModel:
        """The model with this rule broken."""
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
"""All that must be refuted, by name."""

SPARE = {"opening_without_fence": Mutant("a new lineage is opened without a fence", 2, 1, 2, new_lineage=True)}
"""Rules that can be broken without harm."""

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
    """The way to a breach, one line a step. An attempt is called `A1b`: of driver A, for Batch 1, its second."""
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
    """Checks the right protocol with so many attempts of a Batch, prints a line for each variant."""
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
    """0: the protocol keeps its promises, and every mutant breaks one. Else 1."""
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
