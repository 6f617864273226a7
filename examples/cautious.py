"""Two actors, a class with options and a rule about the state's text: to collect with, to watch and to compare with.

`collect: {policies: [{kind: cautious, options: {stop: 12}}]}`, `laurel play cautious`, or an arm that is not trained:
`arms: {cautious: {reward: null, agent: cautious}}`.
"""

from laurel.agents.actor import Acted, Actor, Rule


class Cautious(Actor):
    """Plays Blackjack: takes cards until it has `stop`."""

    role = "baseline"  # of its arms in the report: baseline (the default), method, control or bound

    def __init__(self, adapter, stop=17):
        self.stop, self.begun = stop, 0

    def begin(self, which):
        self.begun += which.sum()

    def act(self, view, rng):
        assert self.begun > 0, "begin is called before act"
        return Acted((view.packed[:, 0] < self.stop).astype(int))


def reader(adapter):
    """Take a card with ten to nineteen, as the state's text says."""
    return Rule(lambda text: int("You have 1" in text), of="text")


ACTOR = Cautious
