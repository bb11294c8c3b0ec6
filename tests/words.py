"""Words that texts for people do not use, and what they use instead."""

from __future__ import annotations

import re

_RULES = (
    (r"\b(asked|wanted) (is|was) (?!for\b|to\b)", "expected"),
    (r"\b(is|are|was|were) (only )?told\b(?! (to|by)\b)", "reported, logged, shown, sent"),
    (r"\btells (the|its) (leading )?(master|leader|log)\b", "reports to, logs"),
    (r"\bheard (of at once|nothing)\b|\bnothing was heard\b", "last report, no report"),
    (r"\bas (it|they) (is|are) wanted\b|\bwhat is wanted\b|\bwanted of\b", "desired state"),
    (r"\bthe last wish\b|\b(tier|flow)'s wish\b", "last valid desired state"),
    (r"\bhow (they|it|(all )?flows?|(its|their) tiers?) (stands?|goe?s?)\b", "state; rates and backlog"),
    (r"\bstands? (there|twice|beside it)\b", "exists, is duplicated"),
    (r"\bwhat (stands|lies|waits) there\b", "contents, backlog"),
    (
        r"(?<!there )\bis no (time|number|text|JSON|worker|position|label|base64|column|id|folder|limit)\b(?! (that|left|to)\b)",
        "is not a valid ...",
    ),
    (r"\bis none (of|that)\b", "is not one of, is not a"),
    (r"\bit is meant that\b|\bwhere that is meant\b", "allow ..., if intended"),
    (r"^(Say|Let|Be|Have|Forget)\b", "set/show, allow, run, run on, delete"),
    (r"\b(who|whoever) (slept|leads|keeps the folder|asks to it|wants something)\b(?![^.]*\?)", "the leading master, a host that ..."),
    (r"\bhimself\b|\bhis session\b", "itself, its session"),
    (r"\bgoes on (where|behind|as it was)\b", "continues from"),
    (r"\bbegins? anew\b|\bstarts? anew\b", "start from the beginning"),
    (r"\bdoes as it did\b|\bmend (it|them)\b", "still ..., fix"),
    (r"\bsay (--[a-z]|it again|a number)\b", "pass, repeat, enter"),
    (r"\bwaits? for a person\b|\bneeds? a person\b", "needs intervention"),
    (r"\b(out of turn|has its turn again)\b", "disabled, enabled"),
    (r"\b(broker|server|registry|master|channel|node) (is|are) away\b", "unavailable"),
    (r"\bholds? (nobody|no one) (back|up)\b", "does not throttle, does not block"),
    (r"\bwhat (becomes|became|comes|came) of (it|them|a|each|every)\b", "outcome, result"),
    (r"\bwhere (there (is|are)|nothing|none|nobody)\b", "if there is no ..."),
    (r"\b(nobody|somebody|everybody)\b", "name the actor"),
    (r"(?<!dead )(?<!dead-)\bletters?\b(?! (of|and digits|case)\b)", "dead letter"),
    (r"\bas things go\b|\bever more seldom\b|\bin vain\b", "estimated; with back-off; without effect"),
)
"""(pattern, replacement)"""


def faults_of(text: str) -> list[str]:
    """What of a text is written in other words than people know: `found: replacement`."""
    found = ((re.search(pattern, text, re.IGNORECASE | re.MULTILINE), instead) for pattern, instead in _RULES)
    return [f'"{match[0]}": write {instead}' for match, instead in found if match is not None]
