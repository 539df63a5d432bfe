"""The real ollama-mcp from npm, in front of an Ollama whose models play a script."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.npm import need
from tools.npm import OLLAMA_MCP, PROGRAMS

AT = "2026-11-01T12:00:00.000000Z"
COUNTS = {"total_duration": 9, "load_duration": 1, "prompt_eval_count": 4, "eval_count": 5, "eval_duration": 7}


class Ollama(ThreadingHTTPServer):
    """Each model gives its answers one after the other; `prompts` are what they were asked, and by whom."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), OllamaHandler)
        self.answers: dict[str, list[str]] = {}
        self.prompts: list[tuple[str, str]] = []

    @property
    def entry(self) -> dict[str, Any]:
        """How a client is told of the ollama-mcp in front of it."""
        host = f"http://127.0.0.1:{self.server_port}"
        return {"command": str(PROGRAMS / "ollama-mcp"), "env": {"OLLAMA_HOST": host}}

    def plays(self, script: Mapping[str, Sequence[Any]]) -> None:
        """From now on, models answer so: objects as JSON, texts as they are."""
        self.prompts = []
        self.answers = {
            name: [one if isinstance(one, str) else json.dumps(one) for one in each] for name, each in script.items()
        }

    def next_answer(self, model: str, prompt: str) -> str:
        self.prompts.append((model, prompt))
        return self.answers[model].pop(0)


class OllamaHandler(BaseHTTPRequestHandler):
    server: Ollama

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["stream"] is False
        about = {"model": asked["model"], "created_at": AT, "done": True, "done_reason": "stop", **COUNTS}
        if asked["model"] not in self.server.answers:
            self._send({"error": f"model '{asked['model']}' not found"}, 404)
        elif self.path == "/api/generate":
            self._send(about | {"response": self.server.next_answer(asked["model"], asked["prompt"])})
        else:
            said = self.server.next_answer(asked["model"], asked["messages"][-1]["content"])
            self._send(about | {"message": {"role": "assistant", "content": said}})

    def do_GET(self) -> None:
        details = {"format": "gguf", "family": "qwen2", "parameter_size": "14B", "quantization_level": "Q4_K_M"}
        models = [
            {"name": name, "model": name, "modified_at": AT, "size": 1, "digest": "0" * 64, "details": details}
            for name in self.server.answers
        ]
        self._send({"models": models})

    def _send(self, body: Any, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def ollama() -> Iterator[Ollama]:
    need(OLLAMA_MCP)
    with Ollama() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
