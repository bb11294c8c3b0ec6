"""The typed client of the REST API, and the models that it shares with the server. Imports neither FastAPI nor pydantic."""
