"""The params file: its YAML, and one sentence per error."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from laurel.data.gold import GoldFile, Task
from laurel.errors import LaurelError, ParamsError
from laurel.feedback.questions.pair import load_prompt
from laurel.llm.prices import read_prices
from laurel.params import load_params, parse_params
from laurel.pipelines.template import read_template
from minimal_params import MINIMAL
from tiny_project import REPOSITORY

MINIMAL_TEXT = yaml.safe_dump(MINIMAL)


def file_refusal(path: Path) -> str:
    with pytest.raises(ParamsError) as caught:
        load_params(path)
    return str(caught.value)


def test_numbers_with_exponents_are_numbers(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    numbers = {
        "3e-4": 3e-4,
        "12e-4": 12e-4,
        "1E-3": 1e-3,
        "+2e0": 2.0,
        "1.5e1": 15.0,
        "2.e-1": 0.2,
        ".5e1": 5.0,
        "0.25": 0.25,
        "3": 3.0,
    }
    for text, number in numbers.items():
        file.write_text(f"{MINIMAL_TEXT}\nshaping: {{beta: {text}}}\n")
        assert load_params(file).shaping.beta == number
    file.write_text(f"{MINIMAL_TEXT}\nshaping: {{beta: -1e-3}}\n")
    assert "shaping.beta is -0.001, but" in file_refusal(file)


def test_texts_that_look_a_little_like_numbers_stay_texts(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    for text in ("3e", "e3", "1e5x", "MiniGrid-1e5", '"1e5"', "e-4"):
        file.write_text(f"{MINIMAL_TEXT}\ntracking: {{experiment: {text}}}\n")
        assert load_params(file).tracking.experiment == text.strip('"')


def test_an_emoji_may_be_escaped_as_in_json(tmp_path: Path) -> None:
    """PyYAML reads the halves of a pair as two characters, which no encoder and no file takes."""
    file = tmp_path / "params.yaml"
    for text in ("\U0001f600 é", "\ufeffé", "é"):
        file.write_text(f"{MINIMAL_TEXT}\nannotate: {{embedding: {{goal: {json.dumps(text)}}}}}\n")
        assert load_params(file).annotate.embedding.goal == text


def test_lists_and_paths_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(
        "env: {id: CartPole-v1}\n"
        "collect:\n  steps: 1_000\n  policies:\n    - {kind: checkpoint, path: data/x}\n"
        "arms: full\nagent:\n  seeds: [0, 1]\n  steps: 10\n  ppo:\n    hidden: [8, 8]\n"
    )
    params = load_params(file)
    assert params.collect.steps == 1000
    assert params.collect.policies[0].path == Path("data/x")
    assert params.agent.ppo.hidden == (8, 8)
    assert params.agent.seeds == (0, 1)


def test_anchors_and_merges_are_no_duplicates(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(
        "env: {id: CartPole-v1, kwargs: {a: &a {x: 1, y: 2}, b: &b {<<: *a, x: 3}, c: {<<: *b, y: 4}, d: {<<: *b}}}\n"
        "collect: {steps: 1}\narms: full\nagent: {seeds: [0], steps: 1}\n"
    )
    kwargs = load_params(file).env.kwargs
    assert kwargs == {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}, "c": {"x": 3, "y": 4}, "d": {"x": 3, "y": 2}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty."),
        ("# only a comment\n", "it is empty."),
        ("- env\n- agent\n", "expected keys with values, found a list of 2. laurel init creates"),
        ("just words", 'expected keys with values, found "just words". laurel init creates'),
        ("env: {id: a\ncollect: 3", "not valid YAML at line 2, column 8: "),
        ("env:\n  id: a\n   kwargs: {}\n", "not valid YAML at line 3, column 10: mapping values are not allowed here."),
        ("env:\n\tid: a\n", "not valid YAML at line 2, column 1: "),
        ("env: [", "not valid YAML at line 1, column 7: "),
        ("a: 1\n---\nb: 2\n", "not valid YAML at line 2, column 1: "),
        ("a: *b\n", "not valid YAML at line 1, column 4: found undefined alias 'b'."),
        ("? [a]\n: 1\n", "not valid YAML at line 1, column 3: found unhashable key."),
        (
            "seed: !!python/object:os.system {}\n",
            "not valid YAML at line 1, column 7: could not determine a constructor",
        ),
        ("seed: 2024-13-45\n", 'not valid YAML at line 1, column 7: "2024-13-45" cannot be read as timestamp.'),
        ("seed: !!bool x\n", 'not valid YAML at line 1, column 7: "x" cannot be read as bool.'),
        ("seed: !!timestamp x\n", 'not valid YAML at line 1, column 7: "x" cannot be read as timestamp.'),
        (f"seed: {'9' * 5000}\n", "not valid YAML at line 1, column 7: "),
        ("seed: \x00\n", "not valid YAML: unacceptable character #x0000"),
        ("a: " + "[" * 5000, "not valid YAML: it is nested too deeply."),
        ('a: "\\ud83d"\n', "not valid YAML at line 1, column 4: a text holds half of a surrogate pair"),
        # a knob set twice
        ("seed: 1\nenv: {id: a}\nseed: 1\n", 'not valid YAML at line 3, column 1: "seed" is set twice.'),
        ('env:\n  id: a\n  backend: auto\n  "id": b\n', 'not valid YAML at line 4, column 3: "id" is set twice.'),
        ('"a\\n": 1\n"a\\n": 2\n', 'not valid YAML at line 2, column 1: "a\\n" is set twice.'),
        ("env: {kwargs: {a: 1, b: {c: 1, c: 2}}}\n", 'not valid YAML at line 1, column 32: "c" is set twice.'),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(text)
    message = file_refusal(file)
    assert message.startswith(f"{file}: {says}")
    assert "\n" not in message
    assert len(message) < len(str(file)) + 250


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "none.yaml"
    assert file_refusal(file) == f"{file}: no such file. laurel init creates a project with a params file."


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_bytes(b"seed: 1\n\x80\xff\x00")
    assert file_refusal(file) == f"{file}: not text in UTF-8 (from byte 8 on)."


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert file_refusal(tmp_path) == f"{tmp_path}: cannot be read (Is a directory)."


def test_errors_in_a_file_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(f"{MINIMAL_TEXT}\nshaping: {{beta: -1}}\n")
    assert file_refusal(file).startswith(f"{file}: shaping.beta is -1, but")


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(MINIMAL_TEXT, encoding="utf-8-sig")
    assert load_params(file) == parse_params(MINIMAL, "my.yaml")


def test_the_params_of_the_repository_are_short_and_change_no_default() -> None:
    """So what stands there and what is left out are both what `laurel params` says; DVC needs each section."""
    file = REPOSITORY / "params.yaml"
    assert len(file.read_text().splitlines()) <= 80
    content = yaml.safe_load(file.read_text())
    needed = {"env": {"id": content["env"]["id"]}, "collect": {"steps": content["collect"]["steps"]}}
    needed["agent"] = {key: content["agent"][key] for key in ("seeds", "steps")}
    needed["arms"] = content["arms"]
    assert load_params(file) == parse_params(needed, "needed")
    stages = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())["stages"].values()
    assert {key.split(".")[0] for stage in stages for key in stage["params"]} <= set(content)


# -- files that are not meant well -----------------------------------------------------------------
def bomb(levels: int) -> str:
    lines = ["a0: &a0 [xxxxxxxxxx]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels))]
    return "\n".join(lines) + f"\nenv: {{id: CartPole-v1, kwargs: {{x: *a{levels - 1}}}}}\n"


def many_keys() -> str:
    return MINIMAL_TEXT + "".join(f"k{n}: 1\n" for n in range(10_000))


MERGES = "m0: &m0 {x: 1}\n" + "".join(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}\n" for n in range(1, 12))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (bomb(9), "its aliases repeat more than 4,000,000 characters"),
        (MERGES, "its aliases repeat more than 4,000,000 characters"),
        (f"{MINIMAL_TEXT}# {'x' * 20_000_000}\n", "it is larger than 200 kB"),
        (f"{MINIMAL_TEXT}\0", "unacceptable character #x0000"),
        ('env: {id: "a\\0b"}\n', "a text holds a NUL"),
        (f"{MINIMAL_TEXT}shaping: {'[' * 50_000}\n", "nested too deeply"),
    ],
    ids=["aliases", "merges", "comments", "NUL", "escaped NUL", "depth"],
)
def test_a_file_that_would_fill_the_memory_is_refused_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(text)
    said = file_refusal(file)
    assert sentence in said
    assert "\n" not in said
    with pytest.raises(ParamsError) as caught:
        read_prices(file)
    assert sentence in str(caught.value)


def test_a_long_text_of_digits_is_read_in_time_that_grows_with_its_length_alone(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(f"{MINIMAL_TEXT}shaping: {{beta: {'1' * 150_000}ex}}\n")
    assert "shaping.beta is" in file_refusal(file)  # minutes where a number's digits can be divided in many ways


def test_aliases_are_fine_where_they_repeat_little(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(f"{MINIMAL_TEXT}annotate:\n  embedding: &e {{tie_band: 0.1}}\nshaping: {{<<: {{beta: 2.0}}}}\n")
    assert load_params(file).shaping.beta == 2.0


def test_only_the_first_of_many_errors_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(many_keys())
    lines = file_refusal(file).splitlines()
    assert len(lines) == 11
    assert "k0 is unknown" in lines[0]
    assert lines[-1].endswith("and 9,990 more errors.")


def test_special_files_do_not_block(tmp_path: Path) -> None:
    fifo = tmp_path / "params.yaml"
    os.mkfifo(fifo)
    task = Task("CartPole-v1", "Balance.")
    readers = (load_params, read_prices, read_template, load_prompt, lambda path: GoldFile(path, task))
    for read in readers:
        path = tmp_path / "mine.jinja" if read is load_prompt else fifo
        if not path.exists():
            os.mkfifo(path)
        with pytest.raises(LaurelError, match="not a regular file"):
            read(path)
    with pytest.raises(ParamsError, match="not a regular file"):
        load_params(Path("/dev/zero"))
