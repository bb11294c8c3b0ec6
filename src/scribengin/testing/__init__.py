"""For tests of flows, connectors and of Scribengin itself: the record checker, conformance suites, crash campaigns."""
