"""`make faults ONLY=control`: a control plane whose processes, registry, network and disk are struck while flows run under load.

`wire` (a network that can be cut), `processes` → `household` (a real `scribengin server dev`, its processes, the CLI) → `feeds` (flows
under load, judged at their end) → `life` (struck, measured, brought to its end, judged) → `ways` (how it is struck) → `soak` (what must
stay flat) → `report` → `campaign` (seeds, lives, the command).
"""
