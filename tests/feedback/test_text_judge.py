"""Judges of single texts: what those of other packages return is checked."""

from typing import Any

import numpy as np
import pytest

from laurel.errors import AnnotationError
from laurel.feedback.text_judge import TextJudge


class Theirs(TextJudge):
    """A judge of another package, which returns what it is given."""

    name = "theirs"

    def __init__(self, found: Any) -> None:
        self.found = found

    def utility(self, texts: Any) -> Any:
        return self.found


@pytest.mark.parametrize("found", [None, [1.0], np.zeros((2, 1)), np.array([1.0, np.nan]), np.array(["a", "b"])])
def test_a_utility_that_is_not_a_finite_number_per_text_is_refused(found: Any) -> None:
    with pytest.raises(AnnotationError, match=r"test_text_judge\.Theirs: its utility returned .* for 2 texts, but"):
        Theirs(found).helpful(["a", "b"])


@pytest.mark.parametrize("found", [[0.5, -1], np.array([True, False]), np.array([2, 0])])
def test_numbers_of_any_type_are_taken(found: Any) -> None:
    judge = Theirs(found)
    assert judge.helpful(["a", "b"]).tolist() == [True, False]
    assert judge.utility(["a", "b"]).dtype == np.float64


def test_the_other_answers_are_checked_too() -> None:
    class Whole(Theirs):
        def reached(self, texts: Any) -> Any:
            return self.found

        def scores(self, texts: Any, groups: Any) -> Any:
            return self.found

    groups = np.array([[0, 1]])
    for wrong in (None, [True], np.array([0.2, 1.0]), np.array([[1.0, np.nan]]), np.array([["a", "b"]])):
        with pytest.raises(AnnotationError, match=r"its reached returned .* array of Booleans of shape \(2,\)"):
            Whole(wrong).reached(["a", "b"])
        with pytest.raises(AnnotationError, match=r"its scores returned .* finite numbers of shape \(1, 2\)"):
            Whole(wrong).scores(["a", "b"], groups)
    assert Whole([True, False]).reached(["a", "b"]).tolist() == [True, False]
    assert Whole([[3, 0.5]]).scores(["a", "b"], groups).tolist() == [[3.0, 0.5]]
    assert Theirs(np.array([-1.0, 2.0])).reached(["a", "b"]).tolist() == [False, True], "by utility"
