"""What comes in has the keys that its model has, and no others."""

CLOSED = {"extra": "forbid"}
"""for `__pydantic_config__`: a key that nobody knows is a mistake, and told"""
