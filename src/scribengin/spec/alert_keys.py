"""The keys of `alerts`, declared in the same way as in `keys`."""

from __future__ import annotations

from scribengin.spec.key import Key, Section

ALERT = Section(
    "alert",
    "What is reported to whom. Every alert is also written to the master's log.",
    (
        Key("when", "text", "the condition: one of the forms below", "no progress for 5m", required=True),
        Key("webhook", "text", "a URL that receives the alert as JSON, by POST", "https://hooks.example.org/flows"),
        Key(
            "command",
            "words",
            "a program and its arguments, run without a shell; environment variables describe the alert",
            "[notify, ops]",
        ),
    ),
)
