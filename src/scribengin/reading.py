"""Reading what sinks have committed, outside of a flow.

>>> from scribengin.reading import committed
>>> found = committed("s3://shop/orders", endpoint="https://store:9000")  # doctest: +SKIP
>>> found.rows, found.dataset().to_table()  # doctest: +SKIP

For long reads, during which a sink may merge objects: `with holding(url) as found:`.
"""

from scribengin.connectors.objects.reading import CommittedObject, CommittedObjects, committed, holding

__all__ = ["CommittedObject", "CommittedObjects", "committed", "holding"]
