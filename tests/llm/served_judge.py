"""A script that stands in for `vllm serve` where a judge is asked: it prefers the first text each time."""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """#!{python}
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
arguments = sys.argv[1:]
with Path("{folder}/started").open("a") as file:
    file.write(json.dumps(arguments) + "\\n")
if "broken" in arguments:
    sys.exit("no GPU was found")
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def reply(self, content):
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.reply({{"data": [{{"id": arguments[1]}}]}})
    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with Path("{folder}/asked").open("a") as file:
            file.write(asked + "\\n")
        text = json.dumps({{"analysis": "", "best_description": 1}})
        self.reply({{"id": "1", "object": "chat.completion", "created": 1, "model": arguments[1],
            "choices": [{{"index": 0, "message": {{"role": "assistant", "content": text}}, "finish_reason": "stop"}}],
            "usage": {{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}}})
HTTPServer(("127.0.0.1", int(arguments[arguments.index("--port") + 1])), Handler).serve_forever()
"""


def stand_in(folder: Path) -> Path:
    """Write the script, and return where it is; its arguments are written to `started`, what it is asked to `asked`."""
    script = folder / "vllm"
    script.write_text(_PROGRAM.format(python=sys.executable, folder=folder))
    script.chmod(0o755)
    return script
