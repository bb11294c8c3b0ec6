"""What this repository's tests, benchmarks, examples and campaigns share and no user needs: none of it is in the wheel.

Test data (`tweets`), test doubles, connectors that break their contract on purpose (`broken_*`), models of protocols, and campaigns:
`python -m harness.faults` kills processes, `python -m harness.cuts` changes flows at random. What users test their own flows and
connectors with is `scribengin.testing`.
"""
