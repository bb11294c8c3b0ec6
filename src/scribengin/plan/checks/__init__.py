"""The rules that a flow must keep, grouped by what they look at. Each is a function from a Subject to Problems."""
