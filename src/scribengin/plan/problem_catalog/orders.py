"""The beginning of examples that are whole flow files."""

ORDERS = """version: 1
name: shop
sources:
  orders:
    {type: files, path: data, format: json, schema: "id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP", watermark: ts 10m}
"""
"""Up to the first source; the lines of further ones may follow"""
