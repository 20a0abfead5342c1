"""Chapter 2 as a whole: the analysed file, and the network, kernels and engines beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfml.errors import PerfmlError
from perfml.modeling.features import Problem, build_problem
from perfml.modeling.scoring.protocols import leave_one_out
from perfml.reproduce import Plan, Reproduction
from perfml.reproduce import reproduce as analyse
from perfml.reproduce.claims import Claim
from perfml.reproduce.published import Recording, find_recording
from perfml.reproduce.run import standing_in
from perfml.reproduce.splits import Runs, run_works, scores_of, work_maker
from perfml.util.json_values import json_value
from perfml.util.typing import Progress
from studies.reproduction.network import judged_on, network_facts
from studies.reproduction.network_claims import key_metric_claim, layer_claims


@dataclass(frozen=True)
class Chapter:
    """Everything that is written.

    Attributes
    ----------
    analysis
        The analysis of the file, with the claims of the whole chapter.
    recording
        All 21 layers, where they are at hand.
    network
        Its tables (`studies.reproduction.network.network_facts`).
    """

    analysis: Reproduction
    recording: Recording | None
    network: dict[str, Any] | None

    @property
    def claims(self) -> tuple[Claim, ...]:
        """A verdict each."""
        return self.analysis.claims


def reproduce(
    data: Path | None = None,
    *,
    plan: Plan | None = None,
    url: str | None = None,
    progress: Progress | None = None,
) -> Chapter:
    """Judge every claim of chapter 2; parameters and errors are `perfml.reproduce.reproduce`'s."""
    plan = plan or Plan()
    analysis = analyse(data, plan=plan, url=url, progress=progress)
    recording, reason = _recording()
    network = network_facts(recording)
    claims = [*analysis.claims, *layer_claims(analysis.source.name, network, reason)]
    results = dict(analysis.results)
    if recording is not None and network is not None:
        smaller = plan if analysis.source.published else standing_in(plan)[0]
        held_out = run_recording(build_problem(recording.layers), smaller, progress)
        claims.append(key_metric_claim(judged_on(network), held_out))
        results["recording"] = {
            "name": recording.name,
            "device": network["device"],
            "rows": network["rows"],
            "layers": len(held_out.layers),
            "backends": network["backends"],
            "leave_one_layer_out_mape": {
                name: float(each.score.mean()) for name, each in held_out.unseen.items()
            },
        }
    results["claims"] = [claim.to_dict() for claim in claims]
    whole = replace(analysis, results=json_value(results), claims=tuple(claims))
    return Chapter(whole, recording, network)


def _recording() -> tuple[Recording | None, str]:
    """Return the recording, or None and why: without it the published file can be analysed."""
    try:
        return find_recording(), "none is in this checkout"
    except PerfmlError as error:
        return None, str(error).splitlines()[0]


def run_recording(problem: Problem, plan: Plan, progress: Progress | None = None) -> Runs:
    """Fit the trees on a recording with each of its layers held out, one model seed a layer."""
    splits = leave_one_out(problem.layer, "layer")
    works = [
        work_maker(problem)(("dt", "gbr"), ("training-mean",), split, (seed,), ("builtin",))
        for seed, split in enumerate(splits)
    ]
    fits = run_works(works, plan, 0.2, progress, "layers of the recording")
    layers = [str(problem.layer_names[test[0]]) for _, test in splits]
    return Runs(problem, {}, scores_of(fits), tuple(layers), 0.0)
