"""A client that a generator makes of our OpenAPI starts a run and reads its result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.http.processes import Process

BIN = Path(sys.executable).parent
APP = """\
from holdfast import step, workflow

@step
async def double(cents: int) -> int:
    return 2 * cents

@workflow(name="shop.order")
async def order(cents: int) -> int:
    return await double(cents)
"""
USE = """\
import json, sys
from made_client import Client
from made_client.api.default import get_runs_run, post_runs
from made_client.models import Problem, Start

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)
body = Start.from_dict({"workflow": "shop.order", "id": "order/42", "input": {"cents": 21}})
started = post_runs.sync(client=client, body=body)
again = post_runs.sync(client=client, body=body)
assert not isinstance(started, Problem), started
seen = get_runs_run.sync_detailed(started.ref, client=client)
while seen.status_code == 304 or seen.parsed.state in ("pending", "running"):
    mark = seen.headers["ETag"]
    seen = get_runs_run.sync_detailed(started.ref, client=client, wait_s=10, if_none_match=mark)
run = seen.parsed
missing = get_runs_run.sync("nobody", client=client)
assert isinstance(missing, Problem)
print(json.dumps([started.id, again.id, run.state, run.to_dict()["output"], missing.status]))
"""


def test_a_generated_client_starts_a_run_and_reads_its_result(tmp_path: Path) -> None:
    """The generator needs nothing but the document that the server publishes, and nothing of it is left out."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "use.py").write_text(USE)
    server = Process(tmp_path, f"sqlite:///{tmp_path}/made.db", "up", "app.py")
    try:
        environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
        generate = [
            "generate",
            "--url",
            f"{server.url}/v1/openapi.json",
            "--meta",
            "none",
            "--fail-on-warning",
        ]
        made = subprocess.run(
            [str(BIN / "openapi-python-client"), *generate, "--output-path", "made_client"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        used = subprocess.run(
            [sys.executable, "use.py", server.url], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert used.returncode == 0, used.stderr
        assert json.loads(used.stdout) == ["order/42", "order/42", "succeeded", 42, 404]
    finally:
        server.close()
