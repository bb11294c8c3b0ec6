"""The control plane's master: it observes, decides and acts in cycles. `decide` is a pure function of the `World`; only the executor does
I/O."""
