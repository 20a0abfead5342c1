"""perfml as an agent's tools: asked by the protocol's own client over stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import sys

import jsonschema
import pandas as pd
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from perfml.cli.agents import LARGEST
from perfml.tables import write_table
from tests.support.paths import DATA, ROOT

pytestmark = [pytest.mark.long, pytest.mark.process]
RECORDED = ROOT / "studies/data/h100-strangers6/kernels.parquet"
PROFILE = DATA / "ncu/vectors.ncu-rep"


def talk(conversation, *options):
    """Start the server and hold a conversation with it."""

    async def held():
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "perfml", "mcp", *options], cwd=ROOT
        )
        async with Client(server) as client:
            return await conversation(client)

    return asyncio.run(held())


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


def test_a_kernel_that_is_named_by_reference_is_the_one_that_is_answered():
    async def conversation(client):
        whole = answered(await client.call_tool("advise", {"profile": str(PROFILE)}))
        kernel = whole["headroom"]["kernels"][1]
        one = f"{PROFILE}@{kernel['launch']}"
        return kernel, answered(await client.call_tool("advise", {"profile": one}))

    kernel, alone = talk(conversation)
    assert [each["kernel"] for each in alone["headroom"]["kernels"]] == [kernel["kernel"]]


def test_every_tool_has_schemas_and_answers_fit_them():
    async def conversation(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        answer = await client.call_tool("advise", {"profile": str(PROFILE)})
        return tools, answered(answer)

    tools, answer = talk(conversation)
    assert set(tools) == {"advise", "explain", "gate", "report"}
    assert all(tool.output_schema and tool.description for tool in tools.values())
    jsonschema.validate(answer, tools["advise"].output_schema)


def test_programs_are_run_only_where_the_user_allowed_it():
    async def conversation(client):
        return {tool.name for tool in (await client.list_tools()).tools}

    assert {"collect", "prove"} <= talk(conversation, "--allow-run")


def test_what_is_wrong_is_said_with_its_cure_and_a_name_is_never_an_option(tmp_path):
    async def conversation(client):
        missing = await client.call_tool("advise", {"profile": "nowhere.ncu-rep"})
        option = await client.call_tool("advise", {"profile": "--help"})
        return missing, option

    for result in talk(conversation):
        assert result.is_error
        assert "no such file or dataset" in result.content[0].text
