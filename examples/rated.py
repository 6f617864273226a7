"""A reward method without pairs: the chat model of `annotate` rates each caption.

It asks the question in `rating.py`. Answers are cached like all others, so none is paid for twice.

    annotate: {annotator: openai, openai: {model: gpt-5-mini}}
    arms: {rated: {reward: rated}}
"""

from laurel.rewards.method import Method


class Rated(Method):
    """The reward of a caption is its mean rating, or that of all captions where no answer about it could be read."""

    kind = "rated"
    summary = "a chat model's rating of the caption"
    asks = True
    reads = ("captions",)

    def check(self, context, adapter):
        from laurel.feedback.annotator_kind import kind_of
        from laurel.feedback.chat_annotator import ChatAnnotator

        if not isinstance(kind_of(context.annotate), ChatAnnotator):
            return "it needs a chat model as annotate.annotator."
        _question(adapter)  # so that a missing prompt is an error before anything is collected
        return None

    def estimate(self, context, collected, adapter):
        from laurel.data.captions import read_vocabulary
        from laurel.feedback.annotator_kind import kind_of

        if collected is None:  # nothing is collected yet
            return "a chat model is asked about each caption"
        texts = list(read_vocabulary(collected.captions).texts)
        return kind_of(context.annotate).asked(_question(adapter), texts, "is asked for ratings")

    def fit(self, context, inputs, adapter, seed, place):
        import numpy as np

        from laurel.data.captions import read_vocabulary
        from laurel.feedback.annotator_kind import kind_of
        from laurel.rewards.functions import ScoredCaptions

        texts = list(read_vocabulary(inputs.captions).texts)
        answers = kind_of(context.annotate).answers(_question(adapter), texts, "rewards.rated", context.account)
        ratings = [[vote.value for vote in votes if vote.value is not None] for votes in answers]
        mean = np.mean([np.mean(known) for known in ratings if known])
        scores = [np.mean(known) if known else mean for known in ratings]
        ScoredCaptions.of(texts, np.array(scores, dtype=np.float32)).save(place)

    def check_shuffled(self, name, context, adapter):
        return None

    def fit_shuffled(self, context, inputs, made, seed, place):
        """Give each caption the rating of another one, for the control `shuffled_labels`."""
        from laurel.rewards.functions import ScoredCaptions

        ScoredCaptions.load(made)[0].shuffled(seed).save(place)

    def load(self, place, adapter, quantile):
        import numpy as np

        from laurel.rewards.functions import ScoredCaptions

        # Captions that do not occur in the collected data have no rating and get the mean.
        scored, _ = ScoredCaptions.load(place)
        return scored.reward(quantile, lambda texts: np.full(len(texts), scored.normalizer.mean, dtype=np.float32))


def _question(adapter):
    from laurel.feedback.question import QUESTIONS

    kind = QUESTIONS.load("rating", "rewards.rated")
    return kind(kind.load_prompt("zero_to_ten"), adapter)


METHOD = Rated
