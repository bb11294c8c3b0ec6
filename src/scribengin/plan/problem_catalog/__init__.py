"""Every problem that the plan floor tells beside those of `spec.problems`: what it means, text that makes it, what to do.

Examples may name functions of a module `steps`; the tests have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.plan.problem_catalog import arrows, ends, expressions, python_steps, streams, tests, tiers

if TYPE_CHECKING:
    from scribengin.spec.problem_entry import ProblemEntry

CATALOG: tuple[ProblemEntry, ...] = (
    *arrows.CATALOG,
    *ends.CATALOG,
    *python_steps.CATALOG,
    *expressions.CATALOG,
    *streams.CATALOG,
    *tiers.CATALOG,
    *tests.CATALOG,
)
"""In the order of the reference page"""
