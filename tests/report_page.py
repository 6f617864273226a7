"""A page of the report as a test reads it, and the answers of a judge that it shows."""

from html.parser import HTMLParser

VOID = {"meta", "img", "br", "link", "hr", "input"}


def answer(text, *, swapped=False, verdict="first"):
    return {
        "swapped": swapped,
        "vote": 0,
        "verdict": verdict,
        "answer_p_first": None,
        "annotator": None,
        "answer": text,
    }


INJECTED = '</pre></main><script>alert("raw")</script>{{ 7 * 7 }} & "answer 1"'
SAMPLE = [
    {
        "references": {"oracle": 0.0},
        "pair": 7, "first": "You <b>win</b>.", "second": "You lose.", "status": "ok", "p_first": 0.75,
        "swap_consistent": False, "answers": [answer(INJECTED), answer("It is 2.", swapped=True, verdict="second")],
    },
    {
        "pair": 9, "first": "a", "second": "b", "status": "api_failed", "p_first": None, "swap_consistent": None,
        "answers": [answer(None, verdict="failed")],
    },
]  # fmt: skip


class Page(HTMLParser):
    """Tags, ids and visible text; fails on tags that are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.words, self.sources = [], [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.sources += [value for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not set(self.open) & {"style", "svg", "title", "script"}:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())
