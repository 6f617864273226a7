"""Arms stand by their roles, whatever they are called and however many there are."""

import ast
import html
from pathlib import Path

import numpy as np
import pytest

import laurel
from known_arms import KNOWN
from laurel.evaluation import plots
from laurel.evaluation.arms import arms_of, comparisons_of, main_of, ordered
from laurel.evaluation.report import ReportContent, render
from laurel.evaluation.statistics import rank_agreement, summarise
from laurel.evaluation.style import styles
from laurel.evaluation.summary import markdown_table, table
from laurel.evaluation.verdict import headline
from laurel.params import parse_params
from laurel.params.arm_infos import ArmInfo, arm_infos
from minimal_params import MINIMAL
from tiny_project import REPOSITORY

MANY = (
    ArmInfo("guess", "control", "random actions, never trained", trained=False),
    ArmInfo("sac", "baseline", "the environment's reward alone, by SAC"),
    ArmInfo("plain", "baseline", "the environment's reward alone"),
    ArmInfo("preference_b0", "method", "the learned reward, β 0", ("preference",)),
    ArmInfo("preference_b3", "method", "the learned reward, β 3", ("preference",)),
    ArmInfo("preference_sac", "method", "the learned reward, by SAC", ("preference",)),
    ArmInfo("two_judges", "method", "a sum of two learned rewards", ("preference", "outcome")),
    ArmInfo("goals", "method", "a reward for each goal reached", ("goals",)),
    ArmInfo("random", "control", "a random reward for each caption", ("random",)),
    ArmInfo("random_b0", "control", "a random reward for each caption, β 0", ("random",)),
    ArmInfo("shuffled", "control", "the same answers, shuffled", ("shuffled",)),
    ArmInfo("by_hand", "bound", "progress written by hand", ("by_hand",)),
)


def names(arms):
    return [arm.name for arm in arms]


def test_well_known_arms_have_their_order_and_opponents():
    assert names(ordered(KNOWN.values())) == [
        "extrinsic", "preference", "intrinsic_only", "random_reward", "shuffled_labels", "similarity", "oracle",
        "random_policy",
    ]  # fmt: skip
    opponents = {"extrinsic", "random_reward", "shuffled_labels", "random_policy", "similarity"}
    found = comparisons_of(tuple(KNOWN.values()))
    assert set(found) == {(arm, over) for arm in ("preference", "intrinsic_only") for over in opponents}
    assert len(found) == 10


def test_an_arm_with_a_section_of_defaults_differs_from_one_without():
    """Tasks by learning progress, `curriculum: {}`, had the description of tasks in turns."""
    agents = {"uniform": {}, "progress": {"agent": {"curriculum": {}}}}
    arms = {name: {"reward": None, "role": "control", **agent} for name, agent in agents.items()}
    params = parse_params({**MINIMAL, "arms": arms}, "params.yaml")
    assert [info.label for info in arm_infos(params.arms, params.rewards, params.agent)] == [
        "the environment's reward alone",
        "the environment's reward alone; agent.curriculum with its defaults",
    ]


def test_what_knows_the_task_by_hand_is_a_bound_also_in_a_sum():
    """The headline credited feedback with a sum that has hand-written progress, and with the environment's answers."""
    arms = {
        "sum": {"reward": {"preference": 1, "oracle": 0.5}},
        "truth": {"reward": "truth"},
        "two": {"reward": {"preference": 1, "novelty": 0.5}},
    }
    params = parse_params({**MINIMAL, "arms": arms, "rewards": {"truth": {"kind": "outcome", "judge": "truth"}}}, "")
    infos = arm_infos(params.arms, params.rewards, params.agent)
    assert [info.role for info in infos] == ["bound", "bound", "method"]
    main = main_of(infos)
    assert main is not None
    assert main.name == "two"


def test_any_arms_are_ordered_by_role_and_the_first_method_is_the_main_one():
    assert names(ordered(MANY)) == [
        "sac", "plain", "preference_b0", "preference_b3", "preference_sac", "random", "random_b0", "shuffled",
        "two_judges", "goals", "by_hand", "guess",
    ]  # fmt: skip
    assert main_of(MANY).name == main_of(ordered(MANY)).name == "preference_b0"
    opponents = {over for arm, over in comparisons_of(MANY) if arm == "preference_b0"}
    assert opponents == {"sac", "plain", "random", "random_b0", "shuffled", "two_judges", "goals", "guess"}
    assert main_of(arm for arm in MANY if arm.role != "method") is None


@pytest.mark.parametrize(
    "arms", [MANY, tuple(KNOWN.values()), tuple(ArmInfo(f"m{i}", "method", "") for i in range(12))]
)
def test_arms_look_different_from_each_other(arms):
    looks = styles(arms)
    assert set(looks) == {arm.name for arm in arms}
    assert len({(look.color, str(look.dash), look.marker) for look in looks.values()}) == len(arms)
    assert max(looks, key=lambda name: looks[name].width) == main_of(arms).name


@pytest.fixture(scope="module")
def many(tables):
    made = tables({arm.name: rate for arm, rate in zip(MANY, np.linspace(0.02, 0.98, len(MANY)), strict=True)}, seeds=8)
    curves = made[1][made[1]["arm"] != "guess"]
    metrics = summarise(made[0], curves, MANY, success_threshold=0.9, reward_threshold=None, draws=50, seed=0)
    return made[0], curves, metrics


def test_twelve_arms_give_a_whole_report(many):
    results, curves, metrics = many
    assert names(arms_of(metrics)) == names(ordered(MANY))
    assert [arm.trained for arm in arms_of(metrics)] == [arm.trained for arm in ordered(MANY)]
    said = " ".join(headline(metrics).sentences)
    assert "preference_b0 returned" in said
    assert "sac alone returned" in said
    assert "For reference, progress written by hand (by_hand) returned" in said
    rows = table(metrics).splitlines()[2:14]
    assert [tuple(row.split()[:2]) for row in rows] == [(arm.name, arm.role) for arm in ordered(MANY)]
    assert "| **preference_b0** |" in markdown_table(metrics)
    figures = plots.draw(results, curves, metrics, draws=20)
    curve = figures["success_curve"].axes[0]
    assert {text.get_text() for text in curve.texts} == {arm.name.replace("_", " ") for arm in MANY}
    places = sorted(text.get_position()[1] for text in curve.texts)
    assert np.diff(places).min() > 0.05
    assert places[0] >= 0
    drawn = {name: plots.svg(figure) for name, figure in figures.items()}
    text = html.unescape(render(ReportContent("X-v0", metrics, figures=drawn, rank=rank_agreement(results))))
    assert all(f"{arm.role}: {arm.label}" in text for arm in MANY)


def test_no_code_that_shows_results_names_an_arm():
    source = Path(laurel.__file__).parent
    files = [
        *(
            file
            for folder in ("evaluation", "tuning", "tracking", "classics")
            for file in (source / folder).rglob("*.py")
        ),
        *(
            source / "stages" / f"{name}.py"
            for name in ("evaluate", "track_late", "tune", "try_candidate", "pick_best")
        ),
        source / "cli" / "play.py",
        REPOSITORY / "docs" / "remake.py",
    ]
    found = [
        (file.name, node.lineno)
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare)
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and part.value in KNOWN
    ]
    assert found == []
