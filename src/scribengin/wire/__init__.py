"""What agents and gateways send each other, and what gateways store: frames of records, and the messages of their protocol. Light: it needs
neither Arrow nor NumPy, since agents import it."""
