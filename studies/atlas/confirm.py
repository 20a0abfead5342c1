"""Does the smallest set hold on networks recorded after its rule was written down?

``python -m studies.atlas.confirm FOLDER``, a folder with parts of a Layers table, writes
``benchmarks/results/atlas-confirm.json``.

The rule of `studies.atlas.smallest` was chosen with the atlas's first 221 runs in sight, so that
the set was the same in 100 % of the repetitions proves little. What follows was written on
2026-11-22, 21:30, before the six networks of ``datasets/atlas/confirm.yaml`` were recorded. Seven
more had been recorded at 19:25 to try `perfml predict` on; no search has seen them.

Fixed: the search and its end as they stand in `smallest` (`CHOSEN`, `TWINS`, ridge regression,
each network held out by itself, LightGBM's one standard error), `REPETITIONS` draws of four fifths
of the networks from `SEED`, and the claim `CLAIMED`, the set that the first 221 runs gave.

1. **Enlarged table**: all 50 networks with the runs that were missing, and the 13 new ones. The
   search from its beginning, its end included. Success: the set at which it ends is the same in at
   least `ENOUGH` of the repetitions.
2. **New networks alone**: the same search, three metrics, on the 13 networks only. Success: it
   finds `CLAIMED`. Draws of 13 of the 50 old networks (fp32 at batch 1 and fp16 at batch 8) found
   it 23 times in 30, so this fails one time in four even if the claim is true. How often four
   fifths of the 13 find it is reported.

The goal counts as met if both succeed, and as missed else; which networks failed to be recorded is
said. Reported beside it, without a limit: how often the same set is found when each repetition of 1
also decides by itself where it ends (`ENDS` of them, for time), and the errors on the new networks
of LightGBM fitted on the first 221 runs with shapes, with `CLAIMED` beside them, and with all
counted metrics.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from perfml.modeling.features import BOUND
from perfml.predict.describe import prepare_layers
from perfml.predict.model import log_ratio
from perfml.predict.reference import reference
from perfml.util.files import replacing
from perfml.util.json_values import json_value
from studies.atlas.data import (
    analysing,
    by_network,
    features,
    fit_predict,
    metric_columns_of,
    networks,
    rows,
    shape_columns,
)
from studies.atlas.measure import RESULTS
from studies.atlas.smallest import (
    CHOSEN,
    MOST,
    TRIED,
    offered_by,
    path_of,
    same,
    search,
    stability,
)

CLAIMED = ("inst_executed", "kernels", "threads")
REPETITIONS, ENDS, SEED = 50, 10, 1
ENOUGH = 0.8
FOUND = RESULTS.with_name("atlas-confirm.json")


def enlarged(later: pd.DataFrame) -> pd.DataFrame:
    """Return the atlas's prepared rows and those of later runs."""
    return pd.concat([reference(), later], ignore_index=True)


def confirm():
    """Return what the two tests gave, inside `analysing` the enlarged table."""
    rules, names = TRIED[CHOSEN], rows()["workload"].astype(str)
    known = set(reference()["workload"].astype(str))
    everyone = np.unique(networks())
    new = np.unique(networks()[~names.isin(known).to_numpy()])
    offered = offered_by(rules)
    order = search(everyone, rules, offered, MOST)
    size, path, best = path_of(order)
    parts = stability(rules, MOST, REPETITIONS, everyone, SEED)
    first = {
        "networks": len(everyone),
        "metrics": order[:size],
        "path": path,
        "all": best,
        "same": same(parts, order, size),
        "claimed": set(order[:size]) == set(CLAIMED),
    }
    first["success"] = first["same"] >= ENOUGH
    alone = search(new, rules, offered, len(CLAIMED))
    share = same(stability(rules, len(CLAIMED), REPETITIONS, new, SEED), CLAIMED, len(CLAIMED))
    second = {
        "networks": sorted(set(names[~names.isin(known)])),
        "metrics": alone,
        "same": share,
        "success": set(alone) == set(CLAIMED),
    }
    return {
        "claimed": CLAIMED,
        "repetitions": REPETITIONS,
        "enough": ENOUGH,
        "rows": len(rows()),
        "enlarged": first,
        "new": second,
        "met": first["success"] and second["success"],
        "errors": errors_on(names.isin(known).to_numpy()),
    }


def own_ends(chosen):
    """Return how often a repetition that also decides where it ends finds the chosen set."""
    rules, everyone = TRIED[CHOSEN], np.unique(networks())
    rng, found = np.random.default_rng(SEED), []
    for each in range(ENDS):
        members = rng.choice(everyone, len(everyone) * 4 // 5, replace=False)
        order = search(members, rules, offered_by(rules), MOST, each)
        found.append(order[: path_of(order, members)[0]])
    return {
        "own_ends": [sorted(each) for each in found],
        "same_with_own_ends": float(np.mean([set(each) == set(chosen) for each in found])),
    }


def errors_on(known):
    """Return LightGBM's errors on new networks, fitted on those that were known."""
    few = [*shape_columns(), *(name for each in CLAIMED for name in metric_columns_of(each))]
    table, ratio = features("counted"), log_ratio(rows())
    codes = np.unique(networks()[~known], return_inverse=True)[1]
    found = {}
    columns_of = {"shape": shape_columns(), "claimed": few, "counted": list(table.columns)}
    for name, columns in columns_of.items():
        guess = fit_predict("lgbm", table[columns][known], ratio[known], table[columns][~known])
        found[name] = by_network(guess - ratio[~known], codes)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("later", type=Path, help="folder of the later runs' Layers table")
    given = parser.parse_args()
    from perfml.datasets.parts import read_parts

    table = read_parts(given.later, "layers")
    later = prepare_layers(table.frame, table.provenance)
    later = later[later[BOUND].notna()]
    with analysing(enlarged(later)):
        found = confirm()
        write(found)
        # the dearest part comes last
        found["enlarged"] |= own_ends(found["enlarged"]["metrics"])
        write(found)
    sys.stdout.write(f"{'met' if found['met'] else 'missed'}: {FOUND.name}\n")


def write(found):
    with replacing(FOUND) as temporary:
        text = json.dumps(json_value(found), indent=1, sort_keys=True)
        temporary.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
