"""Programs that make a machine part of a control plane: all on one, a master, a node."""
