"""The work of a master: observe, decide, act, again. `decide` is a pure function of the `World`; only `act` does I/O."""
