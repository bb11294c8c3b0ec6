"""The flow of these tests."""

ORDERS = """version: 1
name: shop
sources:
  orders:
    type: files
    path: nowhere
    format: json
    schema: id BIGINT NOT NULL, user STRING, amount DECIMAL(10,2), at TIMESTAMP
    watermark: at 10m
steps:
  paid: {from: orders, filter: amount > 0, require: {named: user IS NOT NULL}}
  marked: {from: paid, python: "steps:mark"}
  hourly: {from: marked, aggregate: {window: {time: at, size: 1h}, columns: {n: count(*)}}}
sinks:
  kept: {from: marked, type: files, path: away/kept, format: json}
  counts: {from: hourly, type: files, path: away/counts, format: parquet}
"""
STEPS = """def mark(row):
    return {**row, "user": row["user"].upper()}
"""
ORDERS_LINES = ORDERS.splitlines(keepends=True)
