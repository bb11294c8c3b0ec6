"""Make a file of changes in data/: python make_changes.py [HOW_MANY]. A further call makes another one."""

import json
import random
import sys
from pathlib import Path

how_many = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
folder = Path("data")
folder.mkdir(exist_ok=True)
first = 1000 * len(list(folder.glob("*.jsonl")))
dice = random.Random(first)
ops = [dice.choice(["insert", "update", "update", "delete"]) for _ in range(how_many)]
changes = [{"id": dice.randrange(100), "name": f"name {first + n}", "at": first + n, "op": op} for n, op in enumerate(ops)]
path = folder / f"{first:06}.jsonl"
path.write_text("".join(json.dumps(change) + "\n" for change in changes))
print(f"{path}: {how_many} changes of customers 0 to 99")
