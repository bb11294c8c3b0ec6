"""The programs that make a machine part of a control plane: all in one, a master, a node."""
