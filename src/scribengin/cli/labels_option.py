"""`-l LABEL=VALUE`: flows by their labels, beside or in place of their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scribengin.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scribengin.api.views import RegistryView
    from scribengin.client.client import Client

NAME_ONE = "name a flow, or pass -l NAME=VALUE"


def _labels(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{text} is not a valid label; write NAME=VALUE")
        found[name] = value
    return found


labels_option = click.option(
    "-l",
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_labels,
    help="Only flows with this label. May be repeated; a flow must have all of them.",
)
"""Gives a command `labels`, a dict."""


def chosen(client: Client | RegistryView, names: Sequence[str], labels: Mapping[str, str]) -> tuple[str, ...]:
    """The flows that were named, and those with all the labels. Raises Refused where one is not there, or none has the labels: nothing is
    done then."""
    if not names and not labels:
        raise click.UsageError(NAME_ONE)
    for name in names:
        client.flow(name)
    labelled = [row.flow for row in client.flows(labels)] if labels else []
    if labels and not labelled:
        said = ", ".join(f"{name}={value}" for name, value in labels.items())
        raise Refused(
            f"no flow has {said}", remedy="labels are set in flow files: labels: {team: shop}; see: scribengin list", code="label-unknown"
        )
    return tuple(dict.fromkeys([*names, *labelled]))
