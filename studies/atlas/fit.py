"""Fit what `perfml predict` keeps of the atlas: ``python -m studies.atlas.fit``.

Run it after `studies.atlas.pack`, or after a change to how layers are described or fitted; a test
compares what is kept with models fitted anew.
"""

from __future__ import annotations

import argparse
import sys

from perfml.predict.learned import FILE, digest_of, fit_all
from perfml.predict.reference import reference
from studies.atlas.pack import ATLAS


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    path = ATLAS / FILE
    fit_all(reference(), digest_of(ATLAS)).write(path)
    sys.stdout.write(f"{path.name}: {path.stat().st_size / 2**20:.2f} MiB\n")


if __name__ == "__main__":
    main()
