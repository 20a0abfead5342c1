"""Build the documentation: ``python docs/_site/build.py SITE``.

The pages are copied to a folder of their own with what is generated from the program and with the
executed notebooks, and Zensical, the successor of Material for MkDocs, makes the site of them. It
reads ``mkdocs.yml`` and runs no hooks, so all of ours comes before it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

from gallery import MARK, Picture, gallery  # noqa: E402
from generated import filled, links_of_site  # noqa: E402
from notebook_pages import notebook_page  # noqa: E402
from words import NOT_SHOWN, of_site  # noqa: E402


def main() -> None:
    """Build the site that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="folder to write; what is in it is replaced")
    parser.add_argument(
        "--no-execute", action="store_true", help="notebooks without their outputs, in a second"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perfml-docs-") as folder:
        staged = Path(folder)
        stage(staged, execute=not options.no_execute)
        build(staged, options.site.resolve())
    print(of_site(options.site))  # noqa: T201


def stage(folder: Path, *, execute: bool) -> None:
    """Write the pages as they are shown, and their configuration, into a folder."""
    docs = folder / "docs"
    shutil.copytree(ROOT / "docs", docs, ignore=shutil.ignore_patterns("_site", *NOT_SHOWN))
    for page in sorted(docs.rglob("*.md")):
        text = filled(page.read_text(encoding="utf-8"))
        page.write_text(links_of_site(text, page.relative_to(docs).parent), encoding="utf-8")
    (docs / "notebooks").mkdir()
    pictures = notebooks(docs / "notebooks", execute=execute)
    index = docs / "gallery.md"
    shown = index.read_text(encoding="utf-8").replace(MARK, gallery(pictures, docs))
    index.write_text(shown, encoding="utf-8")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for name in ("paths: [.]", "docs/_site/lazy_names.py"):
        assert name in settings, name
    settings = settings.replace("paths: [.]", f"paths: ['{ROOT}']")
    settings = settings.replace("docs/_site/", f"{ROOT}/docs/_site/")
    (folder / "mkdocs.yml").write_text(settings, encoding="utf-8")


def notebooks(folder: Path, *, execute: bool) -> list[Picture]:
    """Write the pages of the notebooks, executed beside each other; return their pictures."""
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    if execute:
        print(f"{len(paths)} notebooks, a minute", flush=True)  # noqa: T201
    make = partial(notebook_page, out=folder, execute=execute)
    with ThreadPoolExecutor(os.cpu_count() if execute else 1) as pool:
        pages = list(pool.map(make, paths))
    for path, page in zip(paths, pages, strict=True):
        (folder / f"{path.stem}.md").write_text(page.text, encoding="utf-8")
    return [picture for page in pages for picture in page.pictures]


def build(staged: Path, site: Path) -> None:
    """Make the site of a staged folder; a broken link or anchor is an error."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(  # noqa: S603
        [*command, "--config-file", str(staged / "mkdocs.yml")],
        cwd=staged,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    print(said.partition("Traceback")[0].rstrip())  # noqa: T201
    if done.returncode:
        raise SystemExit(1)
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(staged / "site", site)


if __name__ == "__main__":
    main()
