"""The shell commands of README and docs/ run as a reader types them, page by page, in a small setting.

A page is one session of bash: its commands in their order, with the files and parameters that it shows. What cannot run
here stands in `pages.NOT_RUN` with the reason, what runs smaller in `instead`: a new command runs or has to be listed.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from kubeflow_server import ROUTES, KubeflowServer
from vertex_server import serving

from installed import EXAMPLES
from laurel.data.manifest import RUN
from pages import NOT_RUN, PAGES, VERTEX, blocks, lines, typed, why_not
from ports import free_port
from tiny_project import UNTRACKED, Project

SMALL = {
    "annotate": {"n_pairs": 100},
    "rewards": {"preference": {"max_epochs": 10}},
    "agent": {"seeds": [0, 1], "steps": 1024, "ppo": {"n_envs": 4, "n_steps": 32, "batch_size": 64, "hidden": [16]}},
    "evaluate": {"episodes": 4, "n_envs": 4, "bootstrap": 100, "animation_steps": 10},
    "tracking": {"enabled": False},
}
"""Sections of a project that `laurel init` made."""


def no_changes() -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class Session:
    """How a page is typed."""

    slow: bool = False
    clone: bool = False
    """Whether it begins in a clone in which `make run` has run, not in an empty folder."""
    before: str = ""
    """What a reader has done before."""
    instead: dict[str, str] = field(default_factory=no_changes)
    """Part of a command of the page -> what stands in its place."""
    files: dict[str, str] = field(default_factory=no_changes)
    """Title of a block -> where its file is written."""
    params: bool = False
    """Whether blocks of YAML without a title go into params.yaml, each section in the place of what is there."""
    python: bool = False
    """Whether blocks of Python without a title are typed, too; else test_library_examples runs them."""
    answers: str = ""
    """What is typed where a command asks."""
    shown: bool = False
    """Whether commands print what the page's blocks of text say."""
    repeated: str = ""
    """A folder in which it repeats the whole of `finished`: what DVC tracks has the same hashes and sizes."""


ROWS = """for one in key goal door; do
    echo "{\\"prompt\\": \\"\\", \\"chosen\\": \\"You see the $one.\\", \\"rejected\\": \\"You bump into the $one.\\"}"
done >rows.jsonl
ask() {
    python -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], sys.argv[2].encode()).read())' "$@"
}"""
SERVED = """"$(type -P laurel)" reward serve reward --port "$PORT" &
until ask "http://127.0.0.1:$PORT/score" '{"texts": ["You see the key."]}' 2>/dev/null; do kill -0 %1; sleep 1; done
kill %1"""
SESSIONS = {
    "README.md": Session(
        slow=True,
        repeated="laurel",
        instead={
            "<this repository>": '--quiet "$CLONE"',
            "cd laurel": 'cd laurel && mkdir .venv && ln -s "$VENV"/* .venv && touch .venv/.ready',  # make setup
        },
    ),
    "docs/annotators.md": Session(clone=True, instead={"laurel collect && laurel caption && laurel": "laurel"}),
    "docs/kubeflow.md": Session(
        clone=True, instead={"http://localhost:8080": '"$KUBEFLOW"', "REGISTRY": "registry.example.com"}
    ),
    "docs/language-model-actors.md": Session(
        slow=True,
        clone=True,
        before="set_params examples/language_actor.yaml "
        "'agent: {seeds: [0], steps: 4096, language_model: {n_envs: 1024}}'",
    ),
    "docs/library.md": Session(instead={"laurel run": 'cp -r "$CLONE/data" "$CLONE/reports" .'}),
    "docs/results.md": Session(slow=True, clone=True),
    "docs/rewards.md": Session(
        clone=True, before=ROWS, instead={"laurel reward serve reward --port 8000": SERVED}, python=True
    ),
    "docs/tracking.md": Session(
        clone=True,
        before="""mkdir docker runs && cp -r reports runs/a && cp -r reports runs/b
            git update-index --skip-worktree dvc.lock""",
        instead={"gs://my-bucket/dvc": '"$REMOTE"'},
    ),
    "docs/tuning.md": Session(
        clone=True,
        instead={"--trials 30": "--trials 2 --steps 2048", "--study rates": "--study rates --trials 2 --steps 2048"},
    ),
    "docs/tutorials/agents.md": Session(
        slow=True,
        files={
            "cautious.py": "my-agents/cautious.py",
            "linear.py": "my-agents/linear.py",
            "pyproject.toml": "../my-agents/pyproject.toml",
        },
        params=True,
    ),
    "docs/tutorials/cloud.md": Session(),
    "docs/tutorials/environment.md": Session(files={"corridor.py": "corridor.py"}, params=True),
    "docs/tutorials/first-run.md": Session(slow=True, python=True, shown=True),
    "docs/tutorials/judge.md": Session(
        files={
            "length.py": "../my-judge/length.py",
            "pyproject.toml": "../my-judge/pyproject.toml",
            "grid.yaml": "grid.yaml",
        },
        params=True,
        answers="2\n1\nq\n",
    ),
    "docs/tutorials/reward-method.md": Session(
        slow=True,
        files={"forward.py": "my-method/forward.py", "pyproject.toml": "../my-method/pyproject.toml"},
        params=True,
    ),
}
"""Page -> how it is typed."""


def to_type(page: str, session: Session) -> Iterator[str]:
    """Yield what is typed into bash for a page."""
    yield session.before
    for block in blocks(page):
        if block.language == "sh":
            for command in lines(block.text):
                if why_not(command) is None:
                    yield f"echo {shlex.quote(f'$ {command}')}"
                    for part, other in session.instead.items():
                        command = command.replace(part, other)
                    yield command
        elif block.title in session.files:
            place = shlex.quote(session.files[block.title])
            yield f"mkdir -p \"$(dirname {place})\" && cat >{place} <<'END'\n{block.text}END"
        elif block.language == "yaml" and session.params:
            yield f'set_params params.yaml {shlex.quote(block.text)} "$SMALL"'
        elif block.language == "python" and not block.title and session.python:
            yield f"python - <<'END'\n{block.text}END"


SET_PARAMS = """import sys, yaml
file, changes, *small = sys.argv[1:]
content = yaml.safe_load(open(file)) | yaml.safe_load(changes)
for section, values in yaml.safe_load(small[0] if small else "{}").items():
    content[section] = (content.get(section) or {}) | values
open(file, "w").write(yaml.safe_dump(content, sort_keys=False))
"""
PRELUDE = f"""set -e -o pipefail
SMALL={shlex.quote(yaml.safe_dump(SMALL))}
set_params() {{ python -c {shlex.quote(SET_PARAMS)} "$@"; }}
laurel() {{
    command laurel "$@" || return
    if [ "$1" = init ]; then set_params "$2/params.yaml" "{{}}" "$SMALL"; fi
}}
"""


def enter(script: str, folder: Path, environment: Mapping[str, str], answers: str = "") -> str:
    """Run a session of bash, which must succeed; return what was printed."""
    file = folder.parent / "session.sh"
    file.write_text(script)
    done = subprocess.run(
        ["bash", str(file)],
        cwd=folder, env=environment, input=answers, text=True, timeout=900, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What the shells have: git's author, pip without an index, and a cluster on this machine."""
    with serving(KubeflowServer(), ROUTES) as cluster:
        people = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        yield {
            **Project(tmp_path / "p").environment(),
            **people,
            "VENV": sys.prefix,
            "REMOTE": str(tmp_path / "remote"),
            "PORT": str(free_port()),
            "KUBEFLOW": cluster.url,
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip takes this for "no"
            "PIP_NO_CACHE_DIR": "1",
            "PIP_TARGET": str(tmp_path / "site"),
            "PYTHONPATH": str(tmp_path / "site"),
            "NO_PROXY": "127.0.0.1,localhost",
        }


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow if session.slow else ()) for page, session in SESSIONS.items()]
)
def test_a_page_as_typed(
    page: str, environment: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    session, folder = SESSIONS[page], tmp_path / "p"
    folder.mkdir()
    if session.clone:
        request.getfixturevalue("finished").copy(folder, UNTRACKED)
        shutil.copytree(EXAMPLES, folder / "examples")
    elif "$CLONE" in "".join(session.instead.values()):
        environment["CLONE"] = str(request.getfixturevalue("finished").path)
    said = enter(PRELUDE + "\n".join(to_type(page, session)), folder, environment, session.answers)
    (tmp_path / "said.txt").write_text(said)
    if session.repeated:  # although times, costs and runs in MLflow are others
        first, again = request.getfixturevalue("finished"), Project(folder / session.repeated)
        assert (again.path / "dvc.lock").read_text() == (first.path / "dvc.lock").read_text()
        runs = [(project.output("evaluate") / RUN).read_bytes() for project in (first, again)]
        assert runs[0] != runs[1]
    if session.shown:
        for line in (line for block in blocks(page) if block.language == "text" for line in block.text.splitlines()):
            assert line in said


def test_every_command_is_run_or_listed() -> None:
    pages = {page for page in PAGES if any(why_not(command) is None for command in typed(page))}
    assert pages == {*SESSIONS, VERTEX}


def test_every_listed_command_is_on_a_page() -> None:
    for begins in NOT_RUN:
        assert any(command.startswith(begins) for page in PAGES for command in typed(page)), begins
    for page, session in SESSIONS.items():
        for part in session.instead:
            assert any(part in command for command in typed(page)), f"{page}: {part}"
        assert set(session.files) <= {block.title for block in blocks(page)}
