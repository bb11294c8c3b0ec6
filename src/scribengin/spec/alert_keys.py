"""The keys of `alerts`, declared as those of `keys` are."""

from __future__ import annotations

from scribengin.spec.key import Key, Section

ALERT = Section(
    "alert",
    "Who is told of what. The master's log always is.",
    (
        Key("when", "text", "what it is about: one of the forms below", "no progress for 5m", required=True),
        Key("webhook", "text", "an address that gets it as JSON, by POST", "https://hooks.example.org/flows"),
        Key("command", "words", "a program and its arguments; no shell; what it is about stands in its environment", "[notify, ops]"),
    ),
)
