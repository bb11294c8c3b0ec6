"""Packages: flows with their code in one file, identified by its hash. Creates, stores and unpacks them, without Spark."""
