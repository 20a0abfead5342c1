"""The verb mcp: perfml as tools for an agent, by the Model Context Protocol over stdin and stdout.

A tool runs the verb of its name with ``--json`` in a process of its own, so that an agent reads
what a person would, and nothing that a verb prints disturbs the protocol. Answers are below 6 kB.

Here to change: a tool is one function; its signature is the input's schema, and its
docstring is what the agent reads.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli.verb import app
from perfml.util.extras import missing_extra

if TYPE_CHECKING:
    from mcp.server import MCPServer

ANSWER_S = 300
"""Seconds that a question of a recorded profile may take."""

LARGEST = 6_000
"""Bytes of an answer, about 1,500 tokens."""

_INSTRUCTIONS = (
    "perfml reads GPU profiles (Nsight Compute, Nsight Systems, PyTorch, nvprof). Call advise on a "
    "profile first: it says what limits each kernel, what to change, and whether to stop. After a "
    "change, profile again and call explain and gate with both profiles. Name one kernel as "
    "FILE@launch, with the launch that advise names. Test every answer of "
    "medium or low confidence."
)


@app.command()
def mcp(
    allow_run: Annotated[
        bool,
        typer.Option("--allow-run", help="Also offer collect and prove, which run programs."),
    ] = False,
) -> None:
    """Offer perfml to an agent as tools (Model Context Protocol over stdio).

    Example: claude mcp add perfml -- perfml mcp
    """
    server(allow_run).run("stdio")


def server(allow_run: bool = False) -> MCPServer[Any]:
    """Return the server.

    `allow_run` offers the tools that run programs of the user. Raises `MissingExtraError` if the
    package ``mcp`` is missing.
    """
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.tools import Tool
        from mcp_types import ToolAnnotations
    except ImportError as error:
        package = "mcp (2 or newer)"
        raise missing_extra(package, "mcp", "perfml mcp") from error
    from perfml import __version__
    from perfml.cli.documents import DOCUMENTS
    from perfml.explain.brief import Brief
    from perfml.util.json_schema import json_schema

    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    writes = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
    runs = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)
    offered: list[tuple[Callable[..., Any], tuple[Any, ...], ToolAnnotations]] = [
        (advise, (Brief,), reads),
        (explain, (Brief,), reads),
        (gate, DOCUMENTS["gate"][:1], reads),
        (report, DOCUMENTS["report"], writes),
    ]
    if allow_run:
        offered += [(verb, DOCUMENTS[verb.__name__], runs) for verb in (collect, prove)]
    tools = []
    for function, kinds, hints in offered:
        tool = Tool.from_function(_as_result(function), annotations=hints)
        tool.fn_metadata.output_schema = json_schema(kinds, title=function.__name__)
        tools.append(tool)
    return MCPServer("perfml", version=__version__, instructions=_INSTRUCTIONS, tools=tools)


def _as_result(verb: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """Return a tool whose result is a verb's document, as it is."""
    from mcp_types import CallToolResult, TextContent

    @functools.wraps(verb)
    def tool(**arguments: Any) -> CallToolResult:
        document = verb(**arguments)
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
        return CallToolResult(
            content=[TextContent(type="text", text=text)], structured_content=document
        )

    tool.__annotations__["return"] = CallToolResult
    return tool


def advise(
    profile: str, kernel: str | None = None, where: list[str] | None = None
) -> dict[str, Any]:
    """Say what limits the kernels of one profile, what to change, and whether to stop.

    profile: a file, a run's folder, or FILE@launch for one launch. kernel: a part of a kernel's
    name. where: conditions such as batch=1. `headroom` holds stop with its reason, and per kernel
    category, efficiency, headroom_us and at_roofline; `layers` hold causes with evidence and do.
    """
    return _answer(["advise", profile], {"--kernel": kernel, "--where": where}, brief=True)


def explain(
    baseline: str,
    candidate: str,
    kernel: str | None = None,
    kernel_candidate: str | None = None,
    where: list[str] | None = None,
) -> dict[str, Any]:
    """Say why the candidate is slower or faster than the baseline, with causes and evidence.

    Both are files, folders or FILE@launch. Use kernel, and kernel_candidate where it was renamed,
    to compare one kernel.
    """
    options = {"--kernel": kernel, "--kernel-b": kernel_candidate, "--where": where}
    return _answer(["explain", baseline, candidate], options, brief=True)


def gate(baseline: str, candidate: str, kernel: str | None = None) -> dict[str, Any]:
    """Judge whether the candidate is worse: same, better, worse, slower or cannot tell.

    Counted work decides; times confirm. Use it to accept or reject a change. Of the layers only
    those that changed are listed.
    """
    answer = _answer(["gate", baseline, candidate], {"--kernel": kernel}, judged=True)
    rows = [row for row in answer.get("layers", []) if row.get("verdict") != "same"]
    return _fitting({**answer, "layers": rows}, "layers")


def report(profile: str, other: str | None = None, out: str = "report.html") -> dict[str, Any]:
    """Write the report of a profile, or of two, as one HTML page for a person; say its summary."""
    given = [profile] if other is None else [profile, other]
    return _answer(["report", *given], {"--out": out})


def collect(program: list[str], out: str, seconds: int = 600) -> dict[str, Any]:
    """Run a program on this machine's GPU and record times and counters into the folder out."""
    return _answer(["collect"], {"--out": out}, program, seconds)


def prove(program: list[str], out: str, seconds: int = 600) -> dict[str, Any]:
    """Run a program and find by experiment what limits each kernel; needs no counters."""
    return _answer(["prove"], {"--out": out}, program, seconds)


def _answer(
    arguments: Sequence[str],
    options: Mapping[str, str | list[str] | None],
    program: Sequence[str] = (),
    seconds: float = ANSWER_S,
    *,
    brief: bool = False,
    judged: bool = False,
) -> dict[str, Any]:
    """Run a verb and return its document; `judged` ones end with the verdict's exit code."""
    from mcp.server.mcpserver.exceptions import ToolError

    verb, *named = arguments
    given = [
        f"{name}={value}"
        for name, values in options.items()
        if values is not None
        for value in ([values] if isinstance(values, str) else values)
    ]
    flags = ["--json", "--quiet", *(["--brief"] if brief else [])]
    # what follows -- is no option, whatever it is called
    command = [sys.executable, "-m", "perfml", verb, *flags, *given, "--", *named, *program]
    try:
        done = subprocess.run(  # noqa: S603 a list of arguments, no shell
            command, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        msg = f"perfml {verb} took more than {seconds:g} s and was ended"
        raise ToolError(msg) from error
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        msg = f"perfml {verb} ended with {done.returncode}: {done.stderr.strip()[-400:]}"
        raise ToolError(msg) from error
    if "error" in document or (done.returncode != 0 and not judged):
        raise ToolError(_said(document.get("error", {}), done.stderr))
    return document


def _said(error: Mapping[str, Any], stderr: str) -> str:
    """Return an error's sentences."""
    parts = [f"{name}: {error[name]}" for name in ("where", "found", "cure") if error.get(name)]
    return "; ".join([str(error.get("what") or stderr.strip()[-400:]), *parts])


def _fitting(answer: dict[str, Any], rows: str) -> dict[str, Any]:
    """Return an answer with as many of its rows as fit, and how many were left out."""
    kept = list(answer[rows])
    while kept and len(json.dumps({**answer, rows: kept})) > LARGEST:
        kept.pop()
    return {**answer, rows: kept, "left_out": len(answer[rows]) - len(kept)}
