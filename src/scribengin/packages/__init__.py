"""Flows with their code as one file, known by its hash: made, kept, and unpacked where they run. No Spark."""
