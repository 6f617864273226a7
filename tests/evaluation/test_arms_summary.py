"""Words and tables about arms whose seeds are planted."""

from pathlib import Path

import numpy as np
import pytest

from known_arms import KNOWN
from laurel.data.json_file import write_json
from laurel.errors import DataError
from laurel.evaluation.arms import described, ordered
from laurel.evaluation.comparison import compare_arms
from laurel.evaluation.statistics import estimate, solved
from laurel.evaluation.summary import SCHEMA, legend, markdown_table, read_metrics, table
from laurel.evaluation.verdict import _too_few, headline, outcome
from laurel.params.arm_infos import ArmInfo

ACTORS = {
    "rule": ArmInfo("rule", "baseline", "the actor cautious, never trained", trained=False),
    "best": ArmInfo("best", "bound", "the actor optimal, never trained", trained=False),
    "omni": ArmInfo("omni", "method", "tasks by interest", draws_tasks=True),
}


def arm(returns, areas=None, *, steps=200_000, success=True, reached=None):
    """Seeds with these returns; they solve the task where they return 0.9 or more."""
    returns, areas = np.asarray(returns, dtype=float), np.asarray(returns if areas is None else areas, dtype=float)
    threshold = None
    if reached is not None:
        threshold = {"median": reached, "ci95": None, "reached": len(returns) if reached else 0, "of": len(returns)}
    entry = {
        "return": estimate(returns, -1.0, 1.0, draws=200, seed=0),
        "success": estimate(returns, -1.0, 1.0, draws=200, seed=0) if success else None,
        "area": estimate(areas, -1.0, 1.0, draws=200, seed=0) if steps else None,
        "solved": solved(returns, 0.9) if success else None,
        "steps_to_threshold": threshold,
        "env_steps": steps,
        "episodes": 160,
        "seeds": list(range(len(returns))),
    }
    return entry, returns, areas


def metrics_of(**arms):
    scores = {"return": {name: made[1] for name, made in arms.items()}}
    scores["area"] = {name: made[2] for name, made in arms.items() if made[0]["env_steps"]}
    infos = ordered({**KNOWN, **ACTORS}[name] for name in arms)
    entries = {info.name: {**described(info), **arms[info.name][0]} for info in infos}
    return {"order": list(entries), "arms": entries, "comparisons": compare_arms(scores, infos)}


def said(**arms):
    found = headline(metrics_of(**arms))
    return found.verdict, " ".join(found.sentences)


def around(value, n=10):
    return value + np.linspace(-0.02, 0.02, n)


def test_better_names_numbers_solved_seeds_and_the_budget():
    verdict, text = said(preference=arm(around(0.95)), extrinsic=arm(around(0.1)))
    assert verdict == "better"
    assert text.startswith("preference returned 0.95 [")
    assert "and solved the task with 10 of 10 seeds; extrinsic alone returned 0.10 [" in text
    assert "with 0 of 10 seeds, after the same 200k steps." in text
    assert "In the end it returned more than extrinsic." in text
    assert "While training (area under the learning curve) it returned more than extrinsic." in text


def test_speed_counts_if_final_returns_are_equal():
    """A verdict of the saturated end alone sees no difference."""
    slow, quick = arm(around(0.95), around(0.3)), arm(around(0.95), around(0.8))
    verdict, text = said(preference=quick, extrinsic=slow, random_reward=slow)
    assert verdict == "better"
    assert "In the end no difference from extrinsic and random_reward was shown." in text
    assert "While training (area under the learning curve) it returned more than extrinsic and random_reward." in text
    assert said(preference=slow, extrinsic=quick)[0] == "worse"


def test_what_returned_on_other_tasks_while_training_is_not_compared():
    """An agent that practises easy tasks returns more while training than one that practises all."""
    found = metrics_of(omni=arm(around(0.95), around(0.8)), extrinsic=arm(around(0.95), around(0.3)))
    assert found["comparisons"]["omni"]["extrinsic"].keys() == {"return"}
    told = headline(found)
    assert told.verdict == "unclear"
    assert "While training" not in " ".join(told.sentences)
    assert "curriculum chose the tasks of omni: the return while training is over these tasks, and is not" in legend(
        found
    )
    assert "curriculum" not in legend(metrics_of(preference=arm(around(0.95)), extrinsic=arm(around(0.3))))


def test_the_success_in_a_task_is_not_called_the_highest_value_of_an_episode():
    task, height = {"success in MiniGrid-Empty-5x5-v0": {}}, {"height": {}}
    for further, by_task, highest in ((task, True, False), (height, False, True), (task | height, True, True)):
        told = legend(metrics_of(preference=arm(around(0.95))) | {"further": further})
        assert ("Success in a task: the share of its evaluation episodes that solved it, averaged." in told) == by_task
        assert ("Further measures: the highest value in an evaluation episode, averaged." in told) == highest


def test_ahead_by_one_measure_and_behind_by_another_is_no_verdict():
    verdict, _ = said(preference=arm(around(0.95), around(0.3)), extrinsic=arm(around(0.8), around(0.5)))
    assert verdict == "unclear"


def test_overlapping_intervals_show_no_difference():
    verdict, text = said(preference=arm(np.linspace(0, 1, 10)), extrinsic=arm(np.linspace(-0.1, 0.9, 10)))
    assert verdict == "unclear"
    assert "no difference from extrinsic was shown" in text
    assert "more than" not in text


def test_a_worse_arm_is_reported_as_worse():
    verdict, text = said(preference=arm(around(0.1)), extrinsic=arm(around(0.9)))
    assert verdict == "worse"
    assert "it returned less than extrinsic" in text


@pytest.mark.parametrize("control", ["random_reward", "shuffled_labels", "random_policy"])
def test_each_control_is_compared_and_an_unbeaten_one_spoils_the_win(control):
    verdict, text = said(preference=arm(around(0.9)), extrinsic=arm(around(0.1)), **{control: arm(around(0.9))})
    assert verdict == "mixed"
    assert f"it returned more than extrinsic; no difference from {control} was shown" in text
    assert "cannot be credited to the feedback" in text


def test_a_better_contender_is_reported_without_changing_the_verdict():
    verdict, text = said(preference=arm(around(0.5)), extrinsic=arm(around(0.1)), similarity=arm(around(0.9)))
    assert verdict == "better"  # of extrinsic, and of all that know nothing of the task
    assert "it returned less than similarity" in text
    assert "cannot be credited" not in text


def test_hand_written_progress_is_called_a_reference_not_a_bound():
    verdict, text = said(preference=arm(around(0.9)), extrinsic=arm(around(0.1)), oracle=arm(around(0.5)))
    assert verdict == "better"
    assert "For reference, hand-written progress as reward (oracle) returned 0.50 [" in text
    assert "bound" not in text


@pytest.mark.parametrize(
    ("measures", "says"), [(1, "1 comparison needs at least 6"), (2, "2 comparisons need at least 6")]
)
def test_one_comparison_needs_and_two_need(measures, says):
    entries = {name: {"p": 1.0} for name in ("return", "area")[:measures]}
    metrics = {"arms": {"mine": {"seeds": [0, 1]}}, "comparisons": {"mine": {"extrinsic": entries}}}
    assert _too_few(metrics, "mine").endswith(f": mine has 2, and {says} of each arm.")


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_too_few_seeds_show_no_difference(n):
    verdict, text = said(preference=arm(around(0.95, n)), extrinsic=arm(around(0.1, n)))
    assert verdict == "unknown"
    assert f"There are too few seeds to tell whether feedback helped: preference has {n}" in text
    assert ("at least 6 of each arm" in text) == (n > 1)
    assert "more than" not in text


def test_six_seeds_can_show_a_difference():
    assert said(preference=arm(around(0.95, 6)), extrinsic=arm(around(0.1, 6)))[0] == "better"


@pytest.mark.parametrize(
    ("p_holm", "ci95", "difference", "said"),
    [
        (0.01, [0.6, 1.0], 1.0, "higher"),
        (0.01, [0.6, 1.0], -1.0, "mostly higher"),
        (0.01, [0.0, 0.4], -1.0, "lower"),
        (0.01, [0.0, 0.4], 0.0, "mostly lower"),
        (0.06, [0.6, 1.0], 1.0, "unclear"),
        (0.01, [0.49, 1.0], 1.0, "unclear"),
    ],
)
def test_a_difference_is_claimed_where_test_and_interval_both_show_it(p_holm, ci95, difference, said):
    entry = {"probability": 0.9, "p": 0.001, "p_holm": p_holm, "ci95": ci95, "seeds": [10, 10]}
    entry["difference"] = difference
    metrics = {"comparisons": {"preference": {"extrinsic": {"return": entry}}}}
    assert outcome(metrics, entry) == said


def test_a_seed_that_diverges_is_no_win():
    """Nine of ten seeds return more, and the mean, which the first sentence names, is far lower."""
    verdict, text = said(preference=arm([*around(0.9, 9), -100.0], around(0.5)), extrinsic=arm(around(0.1)))
    assert verdict == "unclear"
    assert "In the end most of its seeds returned more than those of extrinsic, but not on average." in text
    assert "While training (area under the learning curve) it returned more than extrinsic." in text


def test_p_values_are_adjusted_for_all_comparisons():
    close = {"preference": arm(np.linspace(0, 1, 10) + 0.6), "extrinsic": arm(np.linspace(0, 1, 10))}
    others = {name: arm(around(0.9)) for name in ("random_reward", "shuffled_labels", "similarity", "random_policy")}
    alone, among = metrics_of(**close), metrics_of(**close, intrinsic_only=close["preference"], **others)
    p = [found["comparisons"]["preference"]["extrinsic"]["return"]["p_holm"] for found in (alone, among)]
    assert p[1] > 5 * p[0]
    assert "Holm's correction for 20 comparisons" in table(among)


def test_unknown_returns_give_no_verdict():
    verdict, text = said(preference=arm([np.nan] * 6), extrinsic=arm(around(0.1, 6)))
    assert verdict == "unknown"
    assert "nan" not in text.lower()


def test_missing_arms_are_reported():
    assert "No agent was trained on feedback" in said(extrinsic=arm(around(0.2)))[1]
    verdict, text = said(preference=arm(around(0.2)))
    assert verdict == "unknown"
    assert "No other arm was trained that it could be compared with." in text
    verdict, text = said(preference=arm(around(0.9)), random_reward=arm(around(0.2)))
    assert verdict == "unknown"
    assert "There is no baseline, such as the environment's reward alone, to compare it with." in text


def test_untrained_actors_are_reported_by_role():
    best, rule = arm(around(0.95), steps=0), arm(around(0.5), steps=0)
    verdict, text = said(preference=arm(around(0.9)), rule=rule, best=best)
    assert verdict == "better"
    assert "; rule returned 0.50 [" in text
    assert ", after 200k steps; rule" in text
    assert ", without training. In the end it returned more than rule." in text
    assert "For reference, the actor optimal, never trained (best) returned 0.95" in text
    assert "than rule and best" not in text
    verdict, text = said(preference=arm(around(0.3)), extrinsic=arm(around(0.1)), rule=rule)
    assert verdict == "worse", "the rule has to be beaten as well"
    assert "; extrinsic alone returned 0.10" in text


def test_intrinsic_only_counts_as_the_arm_of_preferences():
    assert said(intrinsic_only=arm(around(0.9)), extrinsic=arm(around(0.2)))[0] == "better"


def test_unequal_budgets_are_reported():
    text = said(preference=arm(around(0.9), steps=100_000), extrinsic=arm(around(0.1)))[1]
    assert ", after 100k steps; extrinsic alone returned 0.10 [" in text
    assert ", after 200k steps." in text


def test_steps_to_the_threshold_are_reported():
    ours, never = arm(around(0.9), reached=45_000.0), arm(around(0.1), reached=0)
    text = said(preference=ours, extrinsic=never)[1]
    assert "(median, and seeds that got there): preference 45k (10 of 10), extrinsic never (0 of 10)." in text
    assert "None of them reached the threshold while training." in said(preference=never, extrinsic=never)[1]
    text = said(preference=never, extrinsic=never, oracle=ours)[1]
    assert "None of them reached the threshold while training, unlike oracle (10 of 10)." in text


def test_tables_are_aligned_and_leave_out_empty_columns():
    metrics = metrics_of(
        oracle=arm(around(0.9), success=False),
        extrinsic=arm(around(0.1), success=False),
        preference=arm(around(0.5), success=False),
    )
    arms, compared, _ = table(metrics).split("\n\n")
    lines = arms.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["extrinsic", "preference", "oracle"]
    assert len({len(line) for line in lines}) == 1
    assert not {"success", "solved", "threshold"} & set(lines[0].split())
    assert compared.splitlines()[2].split() == [
        "preference", ">", "extrinsic", "1.00", "[0.66,", "1.00]", "<0.001", "1.00", "[0.66,", "1.00]", "<0.001",
    ]  # fmt: skip
    arms, compared = markdown_table(metrics).split("\n\n")
    assert arms.splitlines()[3].startswith("| **preference** | **0.50 [")
    for part in (arms, compared):
        assert len({line.count("|") for line in part.splitlines()}) == 1


def test_a_table_says_of_labels_as_of_rewards_that_they_are_simulated_and_once():
    metrics = metrics_of(preference=arm(around(0.95))) | {"simulated": {"outcome": "scripted"}}
    of_labels, of_reward = "The labels are simulated: x.", "The reward outcome is simulated: it was made by scripted."
    shown = table(metrics, [of_labels, of_reward, "Another note."])
    assert [shown.count(note) for note in (of_labels, of_reward, "Another note.")] == [1, 1, 0]


def test_returns_below_a_hundredth_are_told_apart():
    metrics = metrics_of(preference=arm(around(0.9)), extrinsic=arm(around(0.1)))
    for name, mean in (("preference", 0.0042), ("extrinsic", 0.0011)):
        metrics["arms"][name]["return"] = {"mean": mean, "ci95": [mean / 2, 0.005], "iqm": mean}
    assert "0.0042 [0.0021, 0.0050]" in table(metrics)
    assert "| extrinsic | 0.0011 [0.0006, 0.0050] | 0.0011 |" in markdown_table(metrics)
    assert "preference returned 0.0042 [0.0021, 0.0050]" in " ".join(headline(metrics).sentences)


def test_the_median_of_steps_reports_seeds_that_never_reached_it():
    metrics = metrics_of(preference=arm(around(0.5)))
    entry = {"median": None, "ci95": [279_000.0, None], "reached": 1, "of": 5, "per_seed": []}
    metrics["arms"]["preference"]["steps_to_threshold"] = entry
    assert "never [279k, never] (1 of 5)" in table(metrics)


def test_metrics_of_another_version_are_refused(tmp_path: Path):
    file = tmp_path / "m.json"
    write_json(file, {"schema": SCHEMA, "arms": {}})
    assert read_metrics(file) == {"schema": SCHEMA, "arms": {}}
    write_json(file, {"arms": {}})
    with pytest.raises(
        DataError, match=r"m\.json: was written by another version of Laurel.*Run laurel evaluate again\."
    ):
        read_metrics(file)
    write_json(file, [])
    with pytest.raises(DataError, match=r"m\.json: does not hold the metrics"):
        read_metrics(file)


def test_the_legend_explains_the_columns_that_are_shown_and_no_others():
    unknown = arm([0.5, 0.6], [np.nan, np.nan])
    assert "Return while training" not in legend(metrics_of(preference=unknown, extrinsic=unknown))
    known = arm([0.5, 0.6])
    several = legend(metrics_of(preference=known, extrinsic=known))
    assert "from the first 50 episodes on" in several
    assert "p: exact permutation test, with Holm's correction for 2 comparisons." in several
    info = arm([0.5])
    alone = legend(metrics_of(preference=info, extrinsic=info))
    assert "P(higher): probability that a seed of the first arm" in alone, "its column is shown, too"
    assert "p: none, since a single seed of an arm cannot be tested." in alone
    assert "P(higher)" not in legend(metrics_of(preference=known))


def test_the_legend_says_what_intervals_allow_for():
    trained, played = arm([0.5, 0.6]), arm([0.5, 0.6], steps=0)
    assert "highest mean return of any agent, while training or in the end, or with a success" in legend(
        metrics_of(preference=trained, random_policy=played)
    )
    assert "the highest return of any single episode" in legend(metrics_of(random_policy=played))
    endless = arm([0.5, 0.6], [np.nan, np.nan])
    assert "the highest return of any single episode" in legend(metrics_of(preference=endless)), "no episode ended"


def test_the_legend_says_what_intervals_of_win_rates_are_over():
    """As docs/rlhf.md does, and `win_rates` computes."""
    for seeds, over in (([0.5], "their intervals are over prompts"), ([0.5, 0.6], "their intervals are over seeds")):
        metrics = metrics_of(preference=arm(seeds), random_policy=arm(seeds, steps=0))
        assert over in legend({**metrics, "texts": {"preference": {}, "random_policy": {}}})
