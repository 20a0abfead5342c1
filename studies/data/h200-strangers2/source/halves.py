"""Draws the halves of the pairs, after the labels were frozen: python halves.py (seed 2)."""

import json
import random
from pathlib import Path

here = Path(__file__).parent
pairs = json.loads((here / "labels.json").read_text())["pairs"]
draw = random.Random(2)
halves = {"dev": [], "aside": []}
for equal in (False, True):  # equal pairs are split by themselves, so that both halves have some
    names = sorted(name for name, pair in pairs.items() if (pair["kind"] == "equal") == equal)
    draw.shuffle(names)
    first = (len(names) + equal) // 2
    halves["dev"] += names[:first]
    halves["aside"] += names[first:]
halves = {half: sorted(names) for half, names in halves.items()}
(here / "halves.json").write_text(json.dumps({"seed": 2, **halves}, indent=1) + "\n")
