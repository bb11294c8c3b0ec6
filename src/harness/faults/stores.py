"""The stores of the campaign."""

from __future__ import annotations

from harness.faults.cassandra_flows import CASSANDRA
from harness.faults.delta_flows import DELTA, DELTA_BY_KEY, DELTA_STORED, DELTA_STORED_BY_KEY
from harness.faults.hbase_flows import HBASE
from harness.faults.hdfs_flows import HDFS, HDFS_ROLLED
from harness.faults.index_flows import INDEXES
from harness.faults.object_flows import OBJECTS, OBJECTS_LISTED, OBJECTS_ROLLED
from harness.faults.plain_flows import HTTP, SPARK
from harness.faults.read_table_flows import READ_TABLES
from harness.faults.table_flows import TABLES, TABLES_BY_UNIT

SINKS = {
    "PostgreSQL": (TABLES, TABLES_BY_UNIT),
    "PostgreSQL, read": (READ_TABLES,),
    "Delta": (DELTA, DELTA_BY_KEY, DELTA_STORED, DELTA_STORED_BY_KEY),
    "indexes": (INDEXES,),
    "Cassandra": (CASSANDRA,),
    "objects": (OBJECTS, OBJECTS_LISTED, OBJECTS_ROLLED),
    "HDFS": (HDFS, HDFS_ROLLED),
    "HBase": (HBASE,),
    "HTTP": (HTTP,),
    "Spark writer": (SPARK,),
}
"""sink or source → its routes"""
STORES = tuple(ground for grounds in SINKS.values() for ground in grounds)
GROUND_OF = {route: ground for ground in STORES for route in ground.routes}
KEYED_ROUTES = tuple(
    route for ground in STORES for route in ground.routes if ground in (INDEXES, CASSANDRA, HBASE) or route.endswith("by-key")
)
"""routes into stores that identify rows by an id"""
ROUTES_OF = {sink: tuple(route for ground in grounds for route in ground.routes) for sink, grounds in SINKS.items()}
ROUTES_BESIDE = {route: routes for routes in ROUTES_OF.values() for route in routes}
"""route → all routes of its sink, including itself"""
