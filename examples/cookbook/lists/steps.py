"""The same as `explode`, where a row needs more than SQL says easily."""

from collections.abc import Iterator

from scribengin import record


@record
def items(order: dict) -> Iterator[dict]:
    """As many rows as the order has items; none for an order without."""
    for item in order["items"] or ():
        yield {"id": order["id"], "sku": item["sku"], "n": item["n"]}
