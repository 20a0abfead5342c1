"""perfml as an agent's tools: asked by the protocol's clients, and in JSON."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import jsonschema
import pandas as pd
import pytest

from perfml.cli.agents import LARGEST, Tools, server
from perfml.tables import write_table
from tests.support.command_line import run
from tests.support.paths import DATA, ROOT

pytestmark = [pytest.mark.long, pytest.mark.process]
RECORDED = ROOT / "studies/data/h100-strangers6/kernels.parquet"
PROFILE = DATA / "ncu/vectors.ncu-rep"


def talk(conversation, asked=None):
    """Hold a conversation with a server; one that is started may read temporary folders."""
    # every process that runs tests would load them, for the one that runs these: two seconds
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters

    async def held():
        words = ["-m", "perfml", "mcp", "--root", "/tmp"]
        started = StdioServerParameters(command=sys.executable, args=words, cwd=ROOT)
        async with Client(asked or started) as client:
            return await conversation(client)

    return asyncio.run(held())


@pytest.fixture
def here(monkeypatch):
    """Let tools run their verbs in this process."""

    def ran(command, **_):
        ended = run(*command[3:])
        return SimpleNamespace(stdout=ended.stdout, stderr=ended.stderr, returncode=ended.exit_code)

    here = SimpleNamespace(run=ran, DEVNULL=None, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr("perfml.cli.agents.subprocess", here)


def asked_in_json(version):
    """Return the answers to the first request and to tools/list."""
    command = [sys.executable, "-m", "perfml", "mcp"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as server:

        def ask(number, method, params):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            print(json.dumps(message), file=server.stdin, flush=True)
            answers = map(json.loads, iter(server.stdout.readline, ""))
            return next(answer for answer in answers if answer.get("id") == number)

        client = {"name": "raw", "version": "1"}
        if version < "2026":
            rest = {}
            about = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
            first = ask(1, "initialize", about)
            done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            print(json.dumps(done), file=server.stdin, flush=True)
        else:
            about = {"protocolVersion": version, "clientInfo": client, "clientCapabilities": {}}
            named = {f"io.modelcontextprotocol/{key}": value for key, value in about.items()}
            rest = {"_meta": named}
            first = ask(1, "server/discover", rest)
        tools = ask(2, "tools/list", rest)
        server.stdin.close()
    return first, tools


def answered(result):
    assert not result.is_error, result.content[0].text
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Return a kernel as it was and as it was changed: letters one by one, then whole words."""
    launches = pd.read_parquet(RECORDED)
    chosen = launches[launches["layer"] == "kmer_windows"]
    folder = tmp_path_factory.mktemp("versions")
    paths = {}
    for name, rows in chosen.groupby("backend"):
        paths[name] = folder / f"{name}.parquet"
        write_table(rows.reset_index(drop=True), paths[name], kind="kernels", provenance={})
    return {"slow": str(paths["after"]), "fast": str(paths["before"])}


@pytest.mark.slow
def test_an_agent_profiles_changes_profiles_again_and_decides(versions):
    async def conversation(client):
        first = answered(await client.call_tool("advise", {"profile": versions["slow"]}))
        sides = {"baseline": versions["slow"], "candidate": versions["fast"]}
        why = answered(await client.call_tool("explain", sides))
        kept = answered(await client.call_tool("gate", sides))
        undone = {"baseline": versions["fast"], "candidate": versions["slow"]}
        refused = answered(await client.call_tool("gate", undone))
        return first, why, kept, refused

    first, why, kept, refused = talk(conversation)
    assert first["headroom"]["stop"] is False
    assert "faster" in why["verdict"]
    assert kept["verdict"] == "better"
    assert refused["verdict"] == "worse"
    assert {row["verdict"] for row in refused["layers"]} == {"worse"}
    assert all(len(json.dumps(each)) <= LARGEST for each in (first, why, kept, refused))


@pytest.mark.slow
def test_a_kernel_that_is_named_by_reference_is_the_one_that_is_answered():
    async def conversation(client):
        whole = answered(await client.call_tool("advise", {"profile": str(PROFILE)}))
        kernel = whole["headroom"]["kernels"][1]
        one = f"{PROFILE}@{kernel['launch']}"
        return kernel, answered(await client.call_tool("advise", {"profile": one}))

    kernel, alone = talk(conversation)
    assert [each["kernel"] for each in alone["headroom"]["kernels"]] == [kernel["kernel"]]


def test_every_tool_has_schemas_and_answers_fit_them(here, monkeypatch):
    monkeypatch.chdir(ROOT)

    async def conversation(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        answer = await client.call_tool("advise", {"profile": str(PROFILE)})
        return tools, answered(answer)

    tools, answer = talk(conversation, server())
    assert set(tools) == {"advise", "explain", "gate", "report"}
    assert all(tool.output_schema and tool.description for tool in tools.values())
    jsonschema.validate(answer, tools["advise"].output_schema)


@pytest.mark.parametrize(
    "version",
    [
        "2024-11-05",
        *(pytest.param(day, marks=pytest.mark.slow) for day in ("2025-03-26", "2025-06-18")),
        pytest.param("2025-11-25", marks=pytest.mark.slow),
        "2026-07-28",
    ],
)
def test_tools_are_listed_in_every_version_of_the_protocol(version):
    first, tools = asked_in_json(version)
    assert "result" in first, first
    assert [tool["name"] for tool in tools["result"]["tools"]] == sorted(
        ("advise", "explain", "gate", "report")
    )
    for tool in tools["result"]["tools"]:
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            assert schema["type"] == "object"
            assert "$ref" not in json.dumps(schema)
            jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.slow
def test_a_client_of_an_initialized_session_lists_tools_and_calls_one():
    from mcp import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def held():
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "perfml", "mcp"], cwd=ROOT
        )
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            tools = (await session.list_tools()).tools
            return tools, await session.call_tool("advise", {"profile": str(PROFILE)})

    tools, answer = asyncio.run(held())
    assert len(tools) == 4
    assert answered(answer)["verdict"]


def test_programs_are_run_only_where_the_user_allowed_it(monkeypatch):
    offered = []

    def offer(*roots, **options):
        tools = asyncio.run(server(*roots, **options).list_tools())
        offered.append({tool.name for tool in tools})
        return SimpleNamespace(run=lambda transport: None)

    monkeypatch.setattr("perfml.cli.agents.server", offer)
    for words in (["mcp"], ["mcp", "--allow-run"]):
        assert run(*words).exit_code == 0
    plain, allowed = offered
    assert allowed - plain == {"collect", "prove"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return the folder where a server starts: a profile, and files that are no reports."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "good.ncu-rep").write_bytes(PROFILE.read_bytes())
    (folder / "page.html").write_text("<!doctype html><title>mine</title>")
    (folder / "CLAUDE.md").write_text("Use perfml.\nperfml advise FILE\n")
    (folder / "secret.txt").write_text("password=hunter2\n")
    (tmp_path / "other.txt").write_text("password=hunter3\n")
    return folder


@pytest.mark.parametrize(
    "out",
    [
        *("page.html", "CLAUDE.md", ".profile", "notes", "good.ncu-rep", "../new.html"),
        *("/tmp/new.html", "link.html", "linked/new.html", "new.htm", "folder.html"),
        *("AGENTS.md", "claude.local.md", "docs/README.md", ".git/hooks/new.html", ".github/a.md"),
        *("copilot-instructions.md", "skills/x/SKILL.md"),
    ],
)
def test_a_report_is_written_over_nothing_but_a_report_below_the_start(project, out):
    (project.parent / "other.html").write_text("of somebody else")
    (project / "link.html").symlink_to(project.parent / "other.html")
    (project / "linked").symlink_to(project.parent)
    (project / "folder.html").mkdir()
    (project / ".profile").write_text("export A=1\n")
    before = {path: path.read_bytes() for path in project.parent.rglob("*") if path.is_file()}
    with pytest.raises(Exception, match=r"report|folder"):
        Tools().report("good.ncu-rep", out=out)
    assert before == {
        path: path.read_bytes() for path in project.parent.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"profile": "good.ncu-rep", "kernl": "k"}, "no argument 'kernl'. Did you mean kernel"),
        ({"profile": 3}, "profile is text (found: int)"),
        ({"profile": "good.ncu-rep", "where": "batch=1"}, "where is a list of texts (found: str)"),
        ({"kernel": "k"}, "advise lacks the argument profile"),
    ],
)
def test_an_argument_that_a_tool_does_not_take_is_refused_in_one_sentence(arguments, said):
    with pytest.raises(Exception, match=re.escape(said)) as refused:
        asyncio.run(server().call_tool("advise", arguments))
    assert "pydantic" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("out", [pytest.param("new.html", marks=pytest.mark.slow), "new.md"])
def test_a_report_replaces_only_what_the_same_server_wrote_and_nobody_changed(project, here, out):
    tools = Tools()
    for _ in range(2):
        written = tools.report("good.ncu-rep", out=out)
        assert (project / out).stat().st_size == written["bytes"]
    page = (project / out).read_bytes()
    with pytest.raises(Exception, match="report"):
        Tools().report("good.ncu-rep", out=out)
    assert (project / out).read_bytes() == page
    (project / out).write_bytes(b"A paragraph of my own.\n" + page)
    with pytest.raises(Exception, match="report"):
        tools.report("good.ncu-rep", out=out)
    assert (project / out).read_bytes() != page


@pytest.mark.parametrize(
    "profile", ["../other.txt", "/etc/passwd", "link.txt", "runs", "link.txt@1", "..", "/"]
)
def test_nothing_outside_the_roots_is_read(project, profile):
    (project / "link.txt").symlink_to(project.parent / "other.txt")
    (project / "runs" / "inner").mkdir(parents=True)
    (project / "runs" / "inner" / "metrics.csv").symlink_to(project.parent / "other.txt")
    for tool in (Tools().advise, Tools().report):
        with pytest.raises(Exception, match="folders"):
            tool(profile)


def test_a_root_is_read_and_not_written_to(project):
    roots = [project.parent]
    (project.parent / "other.ncu-rep").write_bytes(PROFILE.read_bytes())
    assert Tools(roots).advise("../other.ncu-rep")["headroom"]
    with pytest.raises(Exception, match="is written to"):
        Tools(roots).report("../other.ncu-rep", out="../new.html")


@pytest.mark.parametrize("profile", ["secret.txt", ".", "secret.json", "table.csv"])
def test_an_answer_does_not_repeat_a_file_that_is_no_profile(project, here, profile):
    (project / "good.ncu-rep").unlink()
    (project / "secret.json").write_text('{"key": "hunter2"}')
    (project / "table.csv").write_text("hunter2,b,c\n1,2,3\n")
    with pytest.raises(Exception, match="profile") as refused:
        Tools().advise(profile)
    assert "hunter2" not in str(refused.value)


@pytest.mark.slow
def test_what_is_wrong_is_said_with_its_cure_and_a_name_is_never_an_option(tmp_path):
    async def conversation(client):
        missing = await client.call_tool("advise", {"profile": "nowhere.ncu-rep"})
        option = await client.call_tool("advise", {"profile": "--help"})
        return missing, option

    for result in talk(conversation):
        assert result.is_error
        assert "no such file or dataset" in result.content[0].text
