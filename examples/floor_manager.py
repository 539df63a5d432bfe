"""
A floor manager: one local model implements a contract, another looks it over, Claude judges, and this script decides.

    implement ──▶ local review ──▶ judge ──▶ PASS: merge
        ▲              │             ├─────▶ CRITICAL_HALT: stop
        └─ objections ─┴─────────────┘       FAIL, CONDITIONAL: another round

    python examples/floor_manager.py _handoff/TASK_CONTRACT.json

The implementer answers with whole files, which are written inside the working directory, where git can show them.
It ends with 0 for merge, 1 when something failed, 3 when the rounds are used up, 4 when the judge halts.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from crewhall.client import Client
from crewhall.errors import Failure

FILES = 'Answer with one JSON object: {"files": {"relative/path": "the whole content of the file"}}'
OPINION = 'Answer with one JSON object: {"ok": true or false, "problems": ["what must change before it is ok"]}'


def say(*words: Any) -> None:
    """Print a line; what models and servers say must not steer the terminal."""
    sys.stdout.write("".join(one if one.isprintable() else "�" for one in " ".join(map(str, words))) + "\n")
    sys.stdout.flush()


class Objection(Exception):
    """Why a round was not enough; the implementer gets to read it."""


def ask(client: Client, args: argparse.Namespace, model: str, *words: str) -> dict[str, Any]:
    """The JSON object that a local model answers with, asked about the contract."""
    prompt = "\n".join(["This is the contract of a task:", args.contract.read_text(), *words])
    answer = client.call_tool(args.ask, {"model": model, "prompt": prompt})
    try:
        answer = answer.get("result", answer) if isinstance(answer, dict) else answer
        return dict(json.loads(answer) if isinstance(answer, str) else answer)
    except (TypeError, ValueError):
        raise Objection(f"{model} answered with no JSON object: {str(answer)[:200]}") from None


def implement(client: Client, args: argparse.Namespace, objections: str) -> dict[str, Any]:
    """Have the files written; their names and contents."""
    files = ask(client, args, args.implementer, "Implement it.", objections, FILES).get("files")
    if not isinstance(files, dict) or not files:
        raise Objection('there is no object "files"')
    write(files, args.directory, json.loads(args.contract.read_text())["changed_files"])
    say(f"  {args.implementer} wrote {', '.join(files)}")
    return files


def write(files: dict[str, Any], directory: Path, allowed: list[str]) -> None:
    """Write all the files, or none when one of them is none that the contract names: the judge sees no others."""
    places = {(directory / name).resolve(): str(text) for name, text in files.items()}
    for place in places:
        if not place.is_relative_to(directory) or place not in [(directory / name).resolve() for name in allowed]:
            raise Objection(f"{place} is not yours to write: the contract's changed_files are {', '.join(allowed)}")
    for place, text in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def local_review(client: Client, args: argparse.Namespace, files: dict[str, Any]) -> None:
    """Raises Objection unless the local reviewer is content."""
    shown = "\n".join(f"--- {name}\n{text}" for name, text in files.items())
    review = ask(client, args, args.reviewer, "Review these files, which are to fulfil it.", shown, OPINION)
    if review.get("ok") is not True:
        raise Objection(f"{args.reviewer} objects: {json.dumps(review.get('problems', []))}")


def judge(client: Client, args: argparse.Namespace) -> str:
    """The verdict, if it is PASS or CRITICAL_HALT. Raises Objection with the blocking issues if not."""
    asked = {"contract_path": str(args.contract)}
    # Who judges is named: another server might offer a tool of that name.
    report = client.call_tool("claude_judge_review", asked, server="judge", progress=lambda *told: say("  …", told[-1]))
    if not report["success"]:
        sys.exit(f"the judge gave no verdict: {report['error']}")
    say(f"  the judge says {report['verdict']}: {report['report_md_path']}")
    if report["verdict"] not in ("PASS", "CRITICAL_HALT"):
        raise Objection(f"the judge objects: {json.dumps(report['blocking_issues'])}")
    return str(report["verdict"])


def play(client: Client, args: argparse.Namespace) -> int:
    """Go round until there is a verdict to act on; the exit code."""
    objections = ""
    for number in range(1, args.rounds + 1):
        say(f"round {number} of {args.rounds}")
        try:
            local_review(client, args, implement(client, args, objections))
            is_good = judge(client, args) == "PASS"
            say("merge" if is_good else "halt: a person has to look at this before anyone goes on")
            return 0 if is_good else 4
        except Objection as objection:
            say(f"  {objection}")
            objections = f"Your last attempt was not accepted: {objection}"
    say("stopped: the rounds are used up, and it is still not good")
    return 3


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("contract", type=Path, help="the path of TASK_CONTRACT.json")
    options.add_argument("--directory", type=Path, default=".", help="the working directory; left out, this one")
    options.add_argument("--implementer", default="qwen2.5-coder:14b", help="the model that writes the files")
    options.add_argument("--reviewer", default="deepseek-r1:7b", help="the model that looks them over")
    options.add_argument("--ask", default="ollama_generate", help="the tool by which a model is asked")
    options.add_argument("--rounds", type=int, default=3, help="how often the implementer may try")
    options.add_argument("--servers", help="a .mcp.json; left out, a hall by `crewhall mcp` and `npx ollama-mcp`")
    args = options.parse_args()
    args.contract, args.directory = args.contract.resolve(), args.directory.resolve()
    hall = ["crewhall", "mcp", "--families", "judge", "--directory", str(args.directory)]
    usual = {"judge": hall, "ollama": ["npx", "-y", "ollama-mcp"]}
    try:
        with Client.from_file(args.servers) if args.servers else Client(usual) as client:
            sys.exit(play(client, args))
    except (Failure, OSError) as failure:
        sys.exit(f"{failure}\n{getattr(failure, 'hint', '')}")
