"""`make faults ONLY=control`: a control plane whose processes, registry, network and disk are struck while flows run under load.

`wire` (a network that can be cut), `processes` → `household` (a real `scribengin server dev`, its processes, the command line) → `feeds`
(flows under load, checked at their end) → `life` (strikes, measures, ends and checks a control plane) → `ways` (the ways to strike) →
`soak` (figures that must not grow) → `report` → `campaign` (seeds, lives, the command).
"""
