"""The rules that a flow must keep, grouped by what they check. Each is a function from a Subject to Problems."""
