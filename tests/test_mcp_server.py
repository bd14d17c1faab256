"""The MCP server, with the client of the official SDK over stdio."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from mgpu.cli import mcp_server
from tests.conftest import ROOT, environment

CONFIG = "distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: bf61\n"


async def _talk(folder: Path) -> tuple[list[Any], list[dict[str, Any]]]:
    from mcp import Client, StdioServerParameters

    env = environment(folder, {"PYTHONPATH": str(ROOT)})
    command = StdioServerParameters(command=sys.executable, args=["-m", "mgpu.cli.mcp_server"], env=env, cwd=folder)
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("doctor", {"demo": "h100-lost-gpu"}),
        ("validate", {"paths": ["accelerate.yaml"], "target": "8xH100-80GB"}),
        ("explain", {"check": "gpu_lost"}),
        ("script", {"path": "missing.py"}),
        ("runs", {}),
    )
    async with Client(command) as client:
        tools = (await client.list_tools()).tools
        answers = [await client.call_tool(name, arguments) for name, arguments in calls]
        refused = await client.call_tool("script", {"path": "--fix"})
    assert refused.is_error
    return tools, [answer.structured_content or {} for answer in answers]


def test_the_tools_give_the_documents_of_the_commands(tmp_path: Path) -> None:
    if importlib.util.find_spec("mcp") is None:
        pytest.skip("mcp is not installed")
    (tmp_path / "accelerate.yaml").write_text(CONFIG)
    tools, (machine, config, text, missing, runs) = asyncio.run(_talk(tmp_path))
    assert {tool.name for tool in tools} == {tool.__name__ for tool in mcp_server.TOOLS}
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
    assert (machine["verdict"], machine["demo"], machine["exit_code"]) == ("not_ready", "h100-lost-gpu", 1)
    assert config["verdict"] == "invalid"
    assert "A GPU" in text["text"]
    assert missing["exit_code"] == 2 or "error" in missing
    assert runs


def test_a_value_is_never_an_option() -> None:
    with pytest.raises(ValueError, match="must not start with a hyphen"):
        mcp_server.validate(["--fix"])


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    assert mcp_server.main() == 3
    assert "mgpu-doctor[mcp]" in capsys.readouterr().err
