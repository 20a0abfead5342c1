"""Run notebooks in one kernel: starting one and loading its libraries takes longer than most do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.processes import PATIENCE_S

FOLDER = ROOT / "notebooks"
_ANEW = """
get_ipython().run_line_magic("reset", "-f")
import os, sys
os.environ.clear()
os.environ.update({environment!r})
os.chdir({folder!r})
for name in [name for name in sys.modules if name.split(".")[0] in ("perfml", "collectors")]:
    del sys.modules[name]
"""
"""Runs before a notebook: no name, variable or module of ours is left from the one before."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that runs one notebook after another."""

    manager: Any

    def run(self, name: str, check: str, before: str = "", fewer=()):
        """Execute a notebook in this process's environment, and return it with its outputs.

        Parameters
        ----------
        name
            The notebook.
        check
            Code that runs after it, on its variables.
        before
            Code that runs before it.
        fewer
            Text of the notebook, and what runs instead.
        """
        import nbclient
        import nbformat

        notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        for wanted, instead in fewer:
            (cell,) = [cell for cell in notebook.cells if wanted in cell.source]
            cell.source = cell.source.replace(wanted, instead)
        anew = _ANEW.format(environment=dict(os.environ), folder=str(FOLDER))
        first = [nbformat.v4.new_code_cell(code) for code in (anew, before)]
        notebook.cells = [*first, *notebook.cells, nbformat.v4.new_code_cell(check)]
        client = nbclient.NotebookClient(notebook, timeout=PATIENCE_S, km=self.manager)
        try:
            client.execute()
        finally:
            if client.kc is not None:
                client.kc.stop_channels()
        return notebook


@pytest.fixture(scope="session")
def kernel(tmp_path_factory):
    """Return a kernel for notebooks, which ends with the tests."""
    from jupyter_client.manager import AsyncKernelManager
    from jupyter_core.utils import run_sync

    own = tmp_path_factory.mktemp("kernel")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(ROOT))
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
            patched.setenv(name, str(own / name))
        manager = AsyncKernelManager(kernel_name="python3")
        run_sync(manager.start_kernel)()
    yield Kernel(manager)
    run_sync(manager.shutdown_kernel)(now=True)
