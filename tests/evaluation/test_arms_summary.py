import doctest

import pytest

from laurel.evaluation import report, statistics, summary
from laurel.evaluation.summary import headline, in_order, markdown_table, table


@pytest.mark.parametrize("module", [summary, statistics, report])
def test_examples_in_docstrings_hold(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def arm(iqm, low=None, high=None, *, steps=200_000, success=True, threshold=None, improvement=None):
    interval = None if low is None else [low, high]
    score = {"iqm": iqm, "ci95": interval}
    return {
        "return": score,
        "success": score if success else None,
        "steps_to_threshold": threshold,
        "probability_of_improvement": improvement,
        "env_steps": steps,
        "episodes": 160,
        "seeds": [0] if low is None else [0, 1, 2, 3, 4],
    }


def said(**arms):
    found = headline({"arms": arms})
    return found.verdict, " ".join(found.sentences)


def test_better_names_both_numbers_and_the_budget():
    verdict, text = said(preference=arm(0.99, 0.98, 1.0), extrinsic=arm(0.01, 0.0, 0.02))
    assert verdict == "better"
    assert "preference reached a success rate of 0.99 [0.98, 1.00]" in text
    assert "extrinsic alone 0.01 [0.00, 0.02] after the same 200k steps" in text
    assert "did better than extrinsic alone" in text


def test_overlap_is_not_a_win():
    verdict, text = said(preference=arm(0.9, 0.5, 1.0), extrinsic=arm(0.4, 0.2, 0.6))
    assert verdict == "unclear"
    assert "did not clearly beat extrinsic" in text


def test_worse_is_said_plainly():
    verdict, text = said(preference=arm(0.1, 0.0, 0.2), extrinsic=arm(0.9, 0.8, 1.0))
    assert verdict == "worse"
    assert "did worse than extrinsic alone" in text


@pytest.mark.parametrize("control", ["random_reward", "shuffled_labels", "random_policy"])
def test_an_unbeaten_uninformed_control_spoils_the_win(control):
    verdict, text = said(preference=arm(0.9, 0.8, 1.0), extrinsic=arm(0.1, 0.0, 0.2), **{control: arm(0.9, 0.75, 1.0)})
    assert verdict == "mixed"
    assert f"did not clearly beat {control} 0.90 [0.75, 1.00]" in text
    assert "cannot be credited to the feedback" in text


def test_a_control_that_did_better_is_said():
    verdict, text = said(preference=arm(0.5, 0.4, 0.6), extrinsic=arm(0.1, 0.0, 0.2), similarity=arm(0.9, 0.8, 1.0))
    assert verdict == "better"  # of extrinsic, and of all that know nothing of the task
    assert "A control did better: similarity 0.90 [0.80, 1.00]." in text
    assert "cannot be credited" not in text


def test_beaten_controls_and_the_oracle_are_listed():
    verdict, text = said(
        preference=arm(0.9, 0.8, 1.0),
        extrinsic=arm(0.1, 0.0, 0.2),
        random_reward=arm(0.0, 0.0, 0.1),
        oracle=arm(1.0, 1.0, 1.0),
    )
    assert verdict == "better"
    assert "It beat every control: random_reward 0.00 [0.00, 0.10]." in text
    assert "upper bound, reached a success rate of 1.00" in text


def test_one_seed_gives_no_verdict():
    verdict, text = said(preference=arm(1.0), extrinsic=arm(0.0), random_reward=arm(0.0))
    assert verdict == "unknown"
    assert "single seed" in text
    assert "beat" not in text


def test_missing_arms_are_said():
    assert "No agent was trained on preferences" in said(extrinsic=arm(0.2, 0.1, 0.3))[1]
    verdict, text = said(preference=arm(0.2, 0.1, 0.3))
    assert verdict == "unknown"
    assert "no extrinsic arm to compare" in text


def test_unequal_budgets_are_said():
    text = said(preference=arm(0.9, 0.8, 1.0, steps=100_000), extrinsic=arm(0.1, 0.0, 0.2))[1]
    assert "after 100k steps; extrinsic alone 0.10 [0.00, 0.20] after 200k steps" in text


def test_return_is_the_measure_where_success_has_no_meaning():
    text = said(preference=arm(-150.0, -160.0, -140.0, success=False), extrinsic=arm(-400.0, -410.0, -390.0))[1]
    assert "preference reached a return of -150.0 [-160.0, -140.0]" in text


def test_steps_to_the_threshold_are_compared():
    ours = {"median": 45_000.0, "reached": 5, "of": 5, "per_seed": []}
    never = {"median": None, "reached": 0, "of": 5, "per_seed": []}
    text = said(preference=arm(0.9, 0.8, 1, threshold=ours), extrinsic=arm(0.1, 0, 0.2, threshold=never))[1]
    assert "preference 45k (5 of 5 seeds), extrinsic never (0 of 5 seeds)" in text


def test_table_is_aligned_and_leaves_out_empty_columns():
    better = {"over": "extrinsic", "value": 1.0, "ci95": [0.9, 1.0]}
    metrics = {
        "arms": {
            "oracle": arm(1.0, 1.0, 1.0, success=False),
            "extrinsic": arm(123.456, 100.0, 130.0, success=False),
            "preference": arm(400.0, 390.0, 410.0, success=False, improvement=better),
        }
    }
    lines = table(metrics).splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["extrinsic", "preference", "oracle"]
    assert len({len(line) for line in lines[:5]}) == 1
    assert "success" not in lines[0]
    assert "threshold" not in lines[0]
    assert "123.5 [100.0, 130.0]" in lines[2]
    assert "1.00 [0.90, 1.00]" in lines[3]
    markdown = markdown_table(metrics).splitlines()
    assert len(markdown) == 5
    assert markdown[3].startswith("| **preference** | **400.0 [390.0, 410.0]** |")
    assert len({line.count("|") for line in markdown}) == 1


def test_arms_keep_their_order_and_strangers_come_last():
    assert in_order(["zeta", "oracle", "preference"]) == ["preference", "oracle", "zeta"]
