"""Flow files of tests: one that is applied as a text, and one with a secret."""

FLOW = """\
version: 1
name: numbers
sources:
  numbers: {type: files, path: FOLDER/data, format: json, schema: "id BIGINT"}
steps:
  odd: {from: numbers, filter: "id % 2 = 1"}
sinks:
  kept: {from: odd, type: files, path: FOLDER/out, format: json}
"""
GUARDED = """\
version: 1
name: numbers
sources:
  numbers: {type: files, path: data, format: json, schema: "id BIGINT"}
sinks:
  kept:
    from: numbers
    type: postgres
    server: postgresql://app@db.example:5432/flows
    config: {user: app, password: hunter2}
    table: kept
"""
