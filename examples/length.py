"""An annotator: prefers the longer text. `annotate: {annotator: length, length: {longest: 80}}`."""

import numpy as np

from laurel.errors import AnnotationError
from laurel.feedback.annotator import Judgement
from laurel.feedback.annotator_kind import AnnotatorKind
from laurel.feedback.text_judge import TextJudge
from laurel.params.fields import Count, Section


class LengthParams(Section):
    """The section `annotate.length`."""

    longest: Count = 100
    """Texts longer than this count as equally long."""


class LengthAnnotator:
    """Judges pairs of texts, as a stream and in order."""

    name, simulated, usage = "length", True, {}

    def __init__(self, longest):
        self.longest = longest

    def prepare(self, pairs):
        """Get ready for pairs that will be asked about."""

    def annotate(self, pairs):
        """Yield a judgement of each pair: the probability that the first text is better, or a tie."""
        for pair in pairs:
            first, second = (min(len(text), self.longest) for text in pair)
            yield Judgement("tie", 0.5) if first == second else Judgement("ok", float(first > second))


class LengthTexts(TextJudge):
    """Scores single texts, above 0 if longer than half of `longest`, for rewards that do not ask about pairs."""

    name = "length"

    def __init__(self, longest):
        self.longest = longest

    def utility(self, texts):
        """Return a number for each text."""
        return np.array([min(len(text), self.longest) - self.longest / 2 for text in texts])


class LengthKind(AnnotatorKind):
    """Makes the annotator from its section."""

    Params = LengthParams
    simulated = True

    def make(self, adapter, seed, captions=(), *, budget=None):
        return LengthAnnotator(self.section.longest)

    def text_judge(self, adapter, seed, captions=()):
        return LengthTexts(self.section.longest)

    def check(self, adapter):
        if self.section.longest < 2:
            raise AnnotationError("annotate.length.longest: all texts count as equally long.")


ANNOTATOR = LengthKind
