"""Code that is shared by this repository's tests, benchmarks, examples and fault campaigns, and that users do not need: none of it is in
the wheel.

It contains test data (`tweets`), test doubles, connectors that break their contract on purpose (`broken_*`), models of protocols, and
campaigns: `python -m harness.faults` kills processes, `python -m harness.cuts` runs random flows whole and divided into tiers.
`scribengin.testing` is for users' tests of their own flows and connectors.
"""
