"""What tests ask of a sweep's folder."""

from dataclasses import asdict

from collectors.sweep.manifest import FILE, Manifest


def read_states(out):
    """Return what the manifest of a folder knows of each run, by id."""
    assert (out / FILE).is_file()
    with Manifest(out) as manifest:
        return {run_id: asdict(state) for run_id, state in manifest.states().items()}
