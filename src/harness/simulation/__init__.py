"""A control plane of simulated hosts and workers under the real master, on a clock of its own: what `make sim-scale` runs."""
