"""The HTTPS door of a flow: takes frames from agents and records from other clients, and stores them in channels."""
