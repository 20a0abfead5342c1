"""What to do about a cause where the launch itself says more than the cause's own row does."""

from __future__ import annotations

import math

from perfml.explain.launches import Launch

_ROOM = {"registers": "registers_per_thread", "shared_memory": "shared_memory_per_block"}
"""What limits how many blocks fit, and the counter of what one needs of it."""

_ACTIONS = {
    "registers": "Use fewer registers a thread (launch bounds, smaller tiles): with {needed:,.0f} "
    "of them {blocks:.0f} block(s) fit on a multiprocessor.",
    "shared_memory": "Ask for less shared memory: with {needed:,.0f} bytes a block {blocks:.0f} "
    "block(s) fit on a multiprocessor.",
}


def action_here(cause: str, launch: Launch) -> str | None:
    """Return what to do about a cause of this launch; None where its row says all.

    Parameters
    ----------
    cause
        Its id.
    launch
        The slow one.
    """
    if cause != "theoretical_occupancy":
        return None
    fit = {
        name: launch[f"resident_blocks_limit_{name}"]
        for name in ("registers", "shared_memory", "warps", "slots")
    }
    known = {name: blocks for name, blocks in fit.items() if not math.isnan(blocks)}
    least = min(known, key=lambda name: known[name], default="")
    if least not in _ROOM:
        return None
    needed = launch[_ROOM[least]]
    if math.isnan(needed):
        return None
    return _ACTIONS[least].format(needed=needed, blocks=known[least])
