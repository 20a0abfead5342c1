"""Where things lie: the repository, the recorded files of the tests, what is shared beside it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
TOOLS = DATA / "fake_tools"
PUBLIC = ROOT.parent / "shared" / "data" / "public_profiles"
