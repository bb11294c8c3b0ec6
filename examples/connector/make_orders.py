"""Make shop.db: python make_orders.py [HOW_MANY]. A further call appends."""

import random
import sqlite3
import sys

how_many = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
with sqlite3.connect("shop.db") as database:
    database.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER NOT NULL, customer TEXT, amount REAL)")
    (first,) = database.execute("SELECT count(*) FROM orders").fetchone()
    dice = random.Random(first)
    rows = ((first + n, dice.choice(["ada", "grace", "tuan"]), round(dice.expovariate(1 / 60), 2)) for n in range(how_many))
    database.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
    # SQLite takes any value in any column; Scribengin does not
    database.execute("INSERT INTO orders VALUES (?, 'linus', 'a lot')", (first + how_many,))
print(f"shop.db: {how_many + 1} more orders, one of them with an amount that is no number")
