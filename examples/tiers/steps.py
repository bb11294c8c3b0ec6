"""The Python steps of the flows in this folder."""

from scribengin import record


@record
def priced(event: dict) -> dict:
    """An event with its amount in cents, and the band it falls into."""
    cents = event["amount"] * 100
    return {"id": event["id"], "user": event["user"], "page": event["page"], "cents": cents, "band": "high" if cents > 20_000 else "low"}
