"""Print what is planted, as ``truth.json``: ``python -m studies.workloads.planted``."""

from __future__ import annotations

import json
import sys

from .definition import truth_document
from .families import FAMILIES

if __name__ == "__main__":
    sys.stdout.write(json.dumps(truth_document(0, FAMILIES), indent=1) + "\n")
