"""A judge on the SDK, by stdio: its verdicts stand in a file beside the contract, and each is given once."""

import json
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("judge")


@server.tool(structured_output=True)
async def claude_judge_review(ctx: Context, contract_path: str, report_dir: str = "_handoff") -> dict[str, Any]:
    """Judge the contract."""
    contract = Path(contract_path)
    script = contract.with_name("verdicts.json")
    verdict, *others = json.loads(script.read_text())
    script.write_text(json.dumps(others))
    await ctx.report_progress(1, None, "reading")
    if verdict not in ("PASS", "CONDITIONAL", "FAIL", "CRITICAL_HALT"):
        return {"success": False, "error": verdict, "duration_ms": 1}
    issues = [] if verdict == "PASS" else [{"file": "a.py", "line": 1, "issue": f"{verdict} issue {len(others)}"}]
    paths = {f"report_{kind}_path": f"{report_dir}/JUDGE_REPORT.{kind}" for kind in ("md", "json")}
    found = {"blocking_issues_count": len(issues), "blocking_issues": issues}
    return {"success": True, "error": None, "verdict": verdict, "duration_ms": 1, **found, **paths}


if __name__ == "__main__":
    sys.exit(server.run("stdio"))
