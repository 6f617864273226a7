"""Comparison tables: ensemble members, judges, learned rewards."""

from typing import Any

import pytest

from laurel.evaluation.side_by_side import judges, learned_rewards, members


def share(value: float) -> dict[str, Any]:
    return {"value": value, "ci95": [0.25, 0.75], "of": 4}


def test_annotators_side_by_side() -> None:
    found = members({"by": [{"annotator": "a", "parse_rate": share(0.5)}, {"annotator": "b", "tie_rate": share(0.5)}]})
    assert found is not None
    assert found.names == ("a", "b")
    assert found.rows == (
        ("answers that could be read", (("50.0%", "25.0% to 75.0%"), ("-", ""))),
        ("pairs that are ties", (("-", ""), ("50.0%", "25.0% to 75.0%"))),
    )
    assert members({"pairs": 3}) is None


def test_of_several_label_sets_a_cell_is_their_range() -> None:
    main = [{"judge": "main", "label_set": n, "annotator": "a", "tie_rate": share(p)} for n, p in enumerate((0.6, 0.4))]
    teacher = {"judge": "teacher", "label_set": 0, "annotator": "b", "tie_rate": share(0.5)}
    found = judges({"label_sets_by": [*main, teacher]})
    assert found is not None
    assert found.names == ("main: a", "teacher: b")
    assert found.rows == (("pairs that are ties", (("40.0% to 60.0%", ""), ("50.0%", "25.0% to 75.0%"))),)
    assert judges({"pairs": 3}) is None


def test_a_figure_that_some_label_sets_lack_says_so() -> None:
    sets = [{"judge": "main", "label_set": n, "annotator": "a", "tie_rate": share(0.5)} for n in (0, 1)]
    found = judges({"label_sets_by": [*sets, {"judge": "main", "label_set": 2, "annotator": "a"}]})
    assert found is not None
    assert found.rows == (("pairs that are ties", (("50.0% (2 of 3 label sets)", ""),)),)


@pytest.mark.parametrize(
    ("of_sets", "shown"),
    [
        ((0.9, None, 0.7), "0.7 to 0.9 (2 of 3 label sets)"),
        ((0.9, 0.7, None), "0.7 to 0.9 (2 of 3 label sets)"),
        ((None, 0.5), "0.5 (1 of 2 label sets)"),
        ((None, None), "-"),
    ],
)
def test_a_reward_s_figure_that_some_label_sets_lack_says_so(of_sets: tuple[float | None, ...], shown: str) -> None:
    key = "heldout_agreement_both_new"  # None where no pair has two new captions
    fitted = [{"reward": "r", "label_set": n, "judge": "main", key: value} for n, value in enumerate(of_sets)]
    found = learned_rewards({"by": fitted})
    assert found is not None
    assert dict(found.rows)["agreement on pairs of two new captions"] == ((shown, ""),)


def test_rewards_with_different_figures() -> None:
    fitted = [
        {"reward": "r", "label_set": n, "judge": "main", "calibration": [{"p": 0.1}], "heldout_loss": loss}
        for n, loss in enumerate((0.4, 0.3, 0.35))
    ]
    asked = {"reward": "goal", "label_set": 0, "judge": "a model", "accuracy": {"value": 0.9}, "heldout_loss": None}
    found = learned_rewards({"heldout_loss": 0.4, "by": [*fitted, asked]})
    assert found is not None
    assert found.names == ("r", "goal")
    assert dict(found.rows) == {
        "label sets": (("3", ""), ("-", "")),
        "judge": (("main", ""), ("a model", "")),
        "held-out loss (cross-entropy)": (("0.3 to 0.4", ""), ("-", "")),
        "accuracy: value": (("-", ""), ("0.9", "")),
    }
    assert learned_rewards({"heldout_loss": 0.4}) is None
