"""Packages: flows with their code as one file, identified by its hash. Creates, stores and unpacks them, without Spark."""
