"""Request models accept exactly the keys that they declare."""

CLOSED = {"extra": "forbid"}
"""for `__pydantic_config__`: an unknown key is reported as an error"""
