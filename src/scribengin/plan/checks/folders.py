"""Rules on the folders that sources read and sinks write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scribengin.connectors.files.globs import WILDCARD
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.flow_links import is_read, root_of
from scribengin.plan.groups import target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.core.options import NodeType
    from scribengin.core.problems import Problem
    from scribengin.spec.model import Sink, Source


def one_writer_a_folder(subject: Subject) -> Iterator[Problem]:
    """Two sinks never write to one folder, nor one inside the other's: a reader would see both as one."""
    written: list[tuple[Sink, Path]] = []
    for sink in subject.flow.sinks.values():
        folder = folder_of(subject, sink, subject.sink_types)
        if folder is None:
            continue
        for other, taken in written:
            if folder == taken:
                message = f'{called(sink)} and sink "{other.id}" both write to {sink.options["path"]}'
            elif folder.is_relative_to(taken) or taken.is_relative_to(folder):
                message = (
                    f'{called(sink)} writes to {sink.options["path"]}, sink "{other.id}" to {other.options["path"]}: one '
                    "folder is inside the other"
                )
            else:
                continue
            remedy = (
                f"give each its own folder, or let one sink read both: from: [{', '.join(dict.fromkeys((*other.inputs, *sink.inputs)))}]"
            )
            yield subject.problem("folder-two-writers", path_of(sink, "path"), message, remedy)
            break
        written.append((sink, folder))


def no_sink_feeds_a_source(subject: Subject) -> Iterator[Problem]:
    """A sink must not write to a folder that a source reads: the flow would read its own output."""
    for source in subject.flow.sources.values():
        read = folder_of(subject, source, subject.source_types)
        if read is None:
            continue
        text = str(source.options["path"])
        for sink in subject.flow.sinks.values():
            written = folder_of(subject, sink, subject.sink_types)
            if written is not None and is_read(subject.flow, text, written):
                message = f'{called(sink)} writes to {sink.options["path"]}, which source "{source.id}" reads ({text})'
                yield subject.problem("folder-read-and-written", path_of(sink, "path"), message, "write to a folder beside it")


def done_files_can_go(subject: Subject) -> Iterator[Problem]:
    """Only files that are read once and whole can be deleted or archived; an archive is not in a folder that a source reads."""
    for source in subject.flow.sources.values():
        done = source.options.get("when_done", "keep")
        archive = source.options.get("archive")
        if done == "archive" and archive is None:
            message = f"{called(source)} has when_done: archive, but no `archive` folder"
            yield subject.problem("done-without-archive", path_of(source, "when_done"), message, "add archive: done")
        if archive is not None and done != "archive":
            message = f"{called(source)} has an `archive` folder, but when_done: {done} does not use it"
            yield subject.problem_at_key("done-without-archive", path_of(source, "archive"), message, "write when_done: archive")
        again = (
            "grow"
            if source.options.get("growing")
            else "are read again at each start, because the source is static"
            if source.static
            else ""
        )
        if again and done != "keep":
            message = f"{called(source)} would {done} files that {again}"
            yield subject.problem("done-read-again", path_of(source, "when_done"), message, "write when_done: keep")
        for reader in subject.flow.sources.values() if done == "archive" and archive is not None else ():
            read, text = folder_of(subject, reader, subject.source_types), str(reader.options.get("path"))
            target = subject.flow.folder.joinpath(str(archive)).resolve()
            folders = Path(text).parent.parts if WILDCARD.search(text) else ()
            below = any(WILDCARD.search(part) for part in folders) or "**" in text
            if read is not None and (target == read or (below and target.is_relative_to(read))):
                message = f'{called(source)} archives to {archive}, which source "{reader.id}" reads ({text})'
                yield subject.problem("done-archive-read", path_of(source, "archive"), message, "archive to a folder beside it")


def folder_of(subject: Subject, node: Source | Sink, types: Mapping[str, NodeType]) -> Path | None:
    """The folder of a node whose type has a `path`; for a glob, the part before its first wildcard. None if there is none, or if it is
    relative to each member of a group."""
    if target(node) is not None:
        return None
    declared = types[node.type].option("path") if node.type in types else None
    if declared is None or declared.kind != "path":
        return None
    return root_of(subject.flow, node.options.get("path"))
