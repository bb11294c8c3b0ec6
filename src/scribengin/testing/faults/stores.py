"""The stores that flows are struck over."""

from __future__ import annotations

from scribengin.testing.faults.cassandra_flows import CASSANDRA
from scribengin.testing.faults.delta_flows import DELTA, DELTA_BY_KEY, DELTA_STORED, DELTA_STORED_BY_KEY
from scribengin.testing.faults.hbase_flows import HBASE
from scribengin.testing.faults.hdfs_flows import HDFS, HDFS_ROLLED
from scribengin.testing.faults.index_flows import INDEXES
from scribengin.testing.faults.object_flows import OBJECTS, OBJECTS_LISTED, OBJECTS_ROLLED
from scribengin.testing.faults.read_table_flows import READ_TABLES
from scribengin.testing.faults.table_flows import TABLES

_SINKS = (
    (TABLES,),
    (READ_TABLES,),
    (DELTA, DELTA_BY_KEY, DELTA_STORED, DELTA_STORED_BY_KEY),
    (INDEXES,),
    (CASSANDRA,),
    (OBJECTS, OBJECTS_LISTED, OBJECTS_ROLLED),
    (HDFS, HDFS_ROLLED),
    (HBASE,),
)
STORES = tuple(ground for grounds in _SINKS for ground in grounds)
GROUND_OF = {route: ground for ground in STORES for route in ground.routes}
ROUTES_BESIDE = {
    route: routes for routes in (tuple(route for ground in grounds for route in ground.routes) for grounds in _SINKS) for route in routes
}
"""route → all that one sink (or source) has, itself too"""
