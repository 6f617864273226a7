import base64
import copy
import dataclasses
import re

import numpy as np
import pytest
import yaml
from PIL import Image

from known_arms import KNOWN
from laurel.data.manifest import RUN_PAGE
from laurel.evaluation import summary
from laurel.evaluation.hacking import Earner, Episode, Hacked, Period
from laurel.evaluation.report import Portrait, ReportContent, render
from laurel.evaluation.run_page import RunFacts, render_run
from laurel.evaluation.statistics import summarise
from laurel.evaluation.style import strokes
from laurel.rewards.method import Program
from report_page import INJECTED, SAMPLE, Page


def test_the_page_is_complete_and_self_contained(content):
    html = render(content)
    page = Page(html)
    assert html.startswith("<!doctype html>")
    assert page.tags.count("script") == 1, "the page's own"
    assert "link" not in page.tags
    assert {source for source in page.sources if not source.startswith(("data:", "#"))} == {RUN_PAGE}, "a link"
    assert "Laurel 1.2 commit abc of 2026-01-02 A <CPU>, AVX2 date and duration: run.html beside this page" in page.text
    assert not re.search(r"url\((?!#)", html)
    assert page.tags.count("svg") == 7
    encoded = base64.b64encode(content.animation.read_bytes()).decode()
    assert f"data:image/webp;base64,{encoded}" in page.sources


def test_ids_are_unique_and_links_within_figures_resolve(content):
    html = render(content)
    ids = Page(html).ids
    assert len(ids) == len(set(ids))
    targets = set(re.findall(r'(?:href="|url\()#([^")]+)', html))
    assert targets
    assert targets <= set(ids)


def test_every_section_is_there(words_only):
    text = Page(render(words_only)).text
    for part in (
        "Preference returned 0.8",
        "EnvPool <was> left out.",
        "A door & a key.",
        "preference > extrinsic 1.00 [0.46, 1.00]",
        "contains the median with a probability of at least 93%",
        "24 captions in all, of which 1 was listed",
        "Kendall's tau",
        "annotator embedding:minilm",
        "pairs 1,276",
        "tokens: input 12",
        "agreement of its members (kappa) 0.50",
        "some new key yes",
        "one is better 900 70.5%",
        "similarity 0.81",
        "A baseline does at least as well as the reward model.",
        "success_threshold: 0.9",
        "laurel 0.1.0",
    ):
        assert part in text, part


def test_what_is_unknown_of_a_rewards_captions_is_not_shown(words_only, vocabulary):
    text = Page(render(words_only)).text
    assert "Rewards are normalised; the spread is that of the ensemble." in text
    assert "caption reward spread met" in text
    bare = vocabulary.assign(spread=0.0, count=0)
    text = Page(render(dataclasses.replace(words_only, vocabulary=bare, normalised=False))).text
    assert "24 captions in all. Rewards are not normalised." in text, "an online judge's answers, met in training"
    assert "spread" not in text
    assert "reward met" not in text


def test_a_reward_learned_during_training_is_said_to_be_one_agents(words_only):
    learned = dataclasses.replace(words_only, learned_by="the agent of online with seed 3")
    said = (
        "1 was listed by the environment but not met. They are those of the agent of online with seed 3, up to the last"
    )
    assert said in Page(render(learned)).text


def test_labelled_pairs_can_be_judged_by_a_person(words_only):
    page = Page(render(words_only))
    assert "2 labelled pairs, with their answers" in page.text
    assert "one is better at odds with the reference depends on the order 1 is better, 75% sure" in page.text
    assert (
        "You <b>win</b>. You lose. Reference: the environment's progress: 2 is better. 1 shown first → 1" in page.text
    )
    assert "2 shown first → 2 It is 2." in page.text
    assert "no answer it gave no answer a b No reference label. 1 shown first → failed" in page.text


def test_why_answers_are_missing(words_only):
    text = Page(render(words_only)).text
    assert f"what times annotator why no answer 1,200 judge <0> status 400: {INJECTED}" in text
    assert "the answer could not be read 3 judge <1> it is empty" in text
    alone = {key: value for key, value in words_only.annotation.items() if key != "by"}
    text = Page(render(dataclasses.replace(words_only, annotation=alone))).text
    assert "what times why no answer 1,200 status 400" in text
    alone.pop("missing")
    assert "answers are missing" not in Page(render(dataclasses.replace(words_only, annotation=alone))).text


def test_raw_answers_are_data(words_only):
    page = Page(render(words_only))
    assert INJECTED in page.text
    assert page.tags.count("script") == 1, "the page's own"
    assert "b" not in page.tags
    assert page.tags.count("main") == 1


def test_a_reward_that_is_code_is_shown_as_text(words_only):
    who = "a simulated writer (no language model)"
    candidates = [(1, "it fails: <b>", None, False), (1, "usable", 2.5, True)]
    program = Program("def reward(a, b):\n    return '<script>' < a\n", who, True, "mean return", candidates)
    metrics = {**words_only.metrics, "simulated": {"written": who}}
    page = render(dataclasses.replace(words_only, programs={"written": program}, metrics=metrics))
    assert "return &#39;&lt;script&gt;&#39; &lt; a" in page
    assert "it fails: &lt;b&gt;" in page
    assert '<span class="tag">simulated writer</span>' in page
    assert "do not show that a model learned" in page
    assert f"The reward written is simulated: it was made by {who}." in page, "below the table"
    assert "is code" not in render(words_only)


def test_only_a_hacked_reward_has_a_section(words_only):
    period = Period(3, 30_000, 90_000, (0.5, 2.25), (0.9, 0.2))
    shares = [Earner("You bump into a <wall>.", (None, 0.25, 1.0))]
    episode = Episode("laurel play a_b 3 --seed 1", 4.0, 0.0, False, 500)
    found = [Hacked("a_b", "success", [period], 4, shares, [episode])]
    metrics = {**words_only.metrics, "hacking": {"a_b": {"agents": 4, "seeds": [3]}}}
    page = render(dataclasses.replace(words_only, hacked=found, metrics=metrics))
    told = "Possible reward hacking in a_b: 1 of 4 agents were paid more while they did worse."
    assert told in page, "below the table"
    assert "a b: 1 of 4 agents" in page
    for cell in ("30k to 90k", "0.50 to 2.25", "0.90 to 0.20", "You bump into a &lt;wall&gt;.", "25%", "100%"):
        assert cell in page
    assert "<code>laurel play a_b 3 --seed 1</code>: paid 4.00, return 0.00, 500 steps, not solved" in page
    assert "Possible reward hacking" not in render(words_only)


def test_rewards_have_their_distances(words_only):
    epic, rank = {"a": {"b": 0.0}}, {"environment": {"a": None, "b": 0.5}, "a": {"b": 0.25}}
    page = render(
        dataclasses.replace(words_only, metrics={**words_only.metrics, "distances": {"epic": epic, "rank": rank}})
    )
    assert '<tr><td>b</td><td class="n">0.00</td></tr>' in page
    assert '<tr><td>b</td><td class="n">0.50</td><td class="n">0.25</td></tr>' in page
    tied = {"environment": {"a": None, "b": 0.125}, "a": {"b": 0.0}}
    found = {"distances": {"epic": epic, "rank": rank, "tied": tied}}
    page = render(dataclasses.replace(words_only, metrics={**words_only.metrics, **found}))
    tied = '<td class="n">{} <span class="interval quiet">({} tie)</span></td>'
    assert f"<tr><td>b</td>{tied.format('0.50', '12%')}{tied.format('0.25', '0%')}</tr>" in page
    assert "on the first collected episodes (at most 20,000 steps, of the first file of trajectories)" in page
    assert "Distances between rewards" not in render(words_only)


def test_captions_are_data(words_only):
    page = Page(render(words_only))
    assert 'You pay $5 & $6 for <script>alert("x")</script> --> {{ 7 * 7 }}' in page.text
    assert page.tags.count("script") == 1, "the page's own"


def test_parameters_can_be_copied_back(words_only):
    html = render(words_only)
    start = html.index("<pre>") + 5
    block = html[start : html.index("</pre>", start)]
    assert yaml.safe_load(block) == words_only.params


def test_same_content_same_page(content):
    assert render(content) == render(content)


def test_a_report_without_data_names_what_is_missing(tables):
    results, curves = tables({"extrinsic": 0.5}, success=False)
    summary = summarise(
        results, curves, tuple(KNOWN.values()), success_threshold=0.9, reward_threshold=None, draws=50, seed=0
    )
    text = Page(render(ReportContent(title="X-v0", metrics=summary))).text
    assert "No agent was trained on feedback" in text
    assert "There is no learned reward in this run." in text
    assert "Too few training episodes ended, so there are no curves: an episode counts once it and all" in text
    assert "annotator" not in text


@pytest.mark.parametrize(("verdict", "words"), [("worse", "Worse than a baseline"), ("unclear", "No clear advantage")])
def test_a_verdict_says_no_more_than_the_comparisons(tables, words_only, verdict, words):
    """A baseline may be a rule, and ahead by one measure and behind by another is a clear difference."""
    rates = {"preference": 0.1 if verdict == "worse" else 0.5, "extrinsic": 0.9 if verdict == "worse" else 0.5}
    summary = summarise(
        *tables(rates, seeds=6), tuple(KNOWN.values()), success_threshold=0.9, reward_threshold=None, draws=50, seed=0
    )
    assert words in Page(render(dataclasses.replace(words_only, metrics=summary))).text


def test_one_seed_is_noted(tables, words_only, content):
    results, curves = tables({"extrinsic": 0.1, "preference": 0.9}, seeds=1)
    summary = summarise(
        results, curves, tuple(KNOWN.values()), success_threshold=0.9, reward_threshold=None, draws=50, seed=0
    )
    text = Page(render(dataclasses.replace(words_only, metrics=summary))).text
    assert "Every arm has a single seed: no interval can be given" in text
    assert "[" not in text[text.index("All arms") : text.index("Means over seeds")]
    assert "the shade of preference its 95% interval" in Page(render(content)).text
    alone = Page(render(dataclasses.replace(content, metrics=summary))).text
    assert "or of fewer at the end of a short training, in the order in which they began. Lines are" in alone


def test_labels_of_a_simulated_judge_are_called_simulated(words_only):
    """Whichever annotator it is, by the note of the stage; another judge's labels are not the first one's."""
    note = "The labels are simulated, not a language model's: length."
    for who, notes, said in (
        ("length", [note], True),
        ("length", [f"Judge teacher: {note}"], True),
        ("embedding (MiniLM)", [f"Judge teacher: {note}"], False),
        ("embedding (MiniLM)", ["The labels are simulated: the arm online learned from length, not from a"], False),
    ):
        page = Page(render(dataclasses.replace(words_only, annotation={"annotator": who, "ok": 1}, notes=notes)))
        assert ("simulated teacher" in page.text) == said
    assert "simulated" not in Page(render(words_only)).text
    among = dataclasses.replace(
        words_only,
        annotation={"annotator": "ensemble", "ok": 1},
        notes=["The labels are simulated, not a language model's: ensemble of 2 (members[0]: scripted (simulated))."],
    )
    assert "simulated teacher" in Page(render(among)).text


def test_few_captions_are_shown_once(words_only):
    few = words_only.vocabulary.head(5)
    html = render(dataclasses.replace(words_only, vocabulary=few, figures={}))
    rewards = re.findall(r'<td class="n (?:up|down)">([^<]*)</td>', html)
    assert [float(reward) for reward in rewards] == pytest.approx(np.sort(few["reward"])[::-1], abs=0.005)


def test_on_a_narrow_screen_each_figure_keeps_the_head_of_its_column(content):
    """There tables of arms are lists, whose heads are hidden; printed, no column is."""
    html = render(content)
    tables = re.findall(r"<table[^>]*stack.*?</table>", html, re.DOTALL)
    for table in tables[:2]:  # the arms, and how they compare
        heads = re.findall(r"<th(?: [^>]*)?>(.*?)</th>", table)
        rows = [re.findall(r'data-head="([^"]*)"', row) for row in table.partition("</thead>")[2].split("</tr>")[:-1]]
        assert rows
        assert all(row == heads for row in rows)
    printed = html[html.index("@media print") : html.index("</style>")]
    assert re.findall(r"([^{};]*){[^}]*display: none", printed) == [" .chips, .filters, .scales, .player, .readout "]


def test_figures_take_the_colours_of_the_page(content):
    html = render(content)
    drawn = html[html.index("<svg") :]
    assert "var(--c-0072b2, #0072b2)" in drawn
    assert not re.search(r'style="[^"]*: #[0-9a-f]{6}', drawn)
    dark = html[html.index("prefers-color-scheme: dark") :]
    used = set(re.findall(r"var\(--c-([0-9a-f]{6})", drawn))
    assert [color for color in used if f"--c-{color}: #" not in dark] == []


def test_only_the_main_arms_interval_is_shown_at_first(content, folder):
    drawn = render(content).partition('class="grid curves"')[2]
    classes = re.findall(r'<g class="(of-arm a\d [^"]*)"', drawn)
    assert {"of-arm a1 band", "of-arm a0 band hidden", "of-arm a0 line", "of-arm a2 name"} <= set(classes)
    assert (folder / "success_curve.svg").read_text().count('id="arm:') == 1 + 3 + 3, (
        "no band of extrinsic, but lines and names"
    )
    assert "arm:extrinsic band hidden" in content.figures["success_curve"], "it is only left out of the file"


def test_the_legend_explains_the_line_styles_in_use():
    assert strokes([KNOWN["preference"], KNOWN["random_reward"]]) == (
        "Lines are solid: methods and the environment's own reward; dashed: controls and other methods that they are "
        "compared with."
    )


def test_pairs_have_their_reference_and_can_be_filtered(words_only):
    page = Page(render(words_only))
    assert "Reference: the environment's progress: 2 is better." in page.text
    tie = {**SAMPLE[0], "status": "tie", "p_first": 0.5, "swap_consistent": True}
    tied = Page(render(dataclasses.replace(words_only, sample=[tie]))).text
    assert not re.search(r"neither is better\s+neither is better", tied)
    assert "No reference label." in page.text
    html = render(words_only)
    assert '<article class="example" data-status="ok" data-disagrees data-order>' in html
    assert '<article class="example" data-status="api_failed">' in html
    assert '<option value="api_failed">no answer</option>' in html
    assert '<div class="filters" hidden>' in html, "without scripts nothing can be filtered, and all is there"


def test_no_raw_names_are_shown(words_only):
    text = Page(render(dataclasses.replace(words_only, params={}))).text
    assert re.findall(r"\b[a-z]+_[a-z_]+\b", text) == []
    assert "Kendall's tau with the return 0.25" in text


def test_every_arm_has_its_film(words_only, tmp_path):
    file = tmp_path / "x.webp"
    Image.new("RGB", (8, 8)).save(file)
    films = [Portrait(arm, 3, file, "solved after 5 steps, return 0.9") for arm in ("extrinsic", "random_policy")]
    page = Page(render(dataclasses.replace(words_only, portraits=films)))
    assert "random policy , seed 3: solved after 5 steps, return 0.9" in page.text
    assert page.tags.count("img") == 3


def test_run_specific_details_have_a_separate_page():
    facts = RunFacts(
        title="X-v0",
        provenance=["2026-01-02", "commit abc", "A CPU, 2 cores"],
        stage_seconds={"collect": 3.2, "train-agents": 75.0},
        usage={
            "annotate": {"calls": 2000, "cost_usd": None, "members.1.calls": 1200, "members.1.cost_usd": 0.25},
            "train-reward": {"calls": 30},
        },
        annotators=["judge <0>", "judge <1>"],
        notes=["evaluate: nothing was logged <b>."],
    )
    text = Page(render_run(facts)).text
    for part in (
        "2026-01-02 · commit abc · A CPU, 2 cores",
        "collect 3.2 s train-agents 1 min 15 s in all 1 min 18 s",
        "Model calls in annotate calls 2,000 cost unknown",
        "Model calls in annotate: judge <1> calls 1,200 cost $0.25",
        "Model calls in train-reward calls 30",
        "nothing was logged <b>.",
    ):
        assert part in text, part
    assert "judge <0>" not in text, "nothing is known of what it took"
    assert "Time" not in Page(render_run(RunFacts("X-v0"))).text


def test_each_dot_is_labelled_with_its_seed(content) -> None:
    figure = render(content).partition('aria-label="Every seed')[2].partition("</svg>")[0]
    titles = re.findall(r"<use [^>]*><title>seed (\d): ([^<]+)</title></use>", figure)
    seeds = len(content.metrics["arms"]["preference"]["seeds"])
    assert len(titles) >= 2 * seeds
    assert {int(seed) for seed, _ in titles} >= set(content.metrics["arms"]["preference"]["seeds"])


def test_how_to_reproduce_and_how_to_cite(words_only) -> None:
    known = dataclasses.replace(
        words_only, data={"captions": "abcdef0123456789"}, provenance=["Laurel 1.2", "commit abc", "cpu"]
    )
    text = Page(render(known)).text
    assert "Install Laurel 1.2, commit abc, with" in text
    assert "captions abcdef012345 ." in text
    assert "note = {MiniGrid-DoorKey-8x8-v0, commit abc}" in text
    text = Page(render(dataclasses.replace(known, provenance=["Laurel 1.2", "cpu"]))).text
    assert "Install Laurel 1.2, with" in text, "an installed Laurel knows no commit"
    assert "note = {MiniGrid-DoorKey-8x8-v0}" in text


def test_intervals_include_label_sets_only_where_agents_differ_in_them(content):
    """Of seeds 0 and 3 modulo 3 both learn from the first of three sets."""
    annotation = {**content.annotation, "label_sets": 3}
    one, three = (render(dataclasses.replace(content, annotation=annotation, label_sets_used=used)) for used in (1, 3))
    assert "Agents learned from 1 of 3 label sets, so intervals over agents do not include" in one
    assert "Agents learned from 3 of 3 label sets, so intervals over agents include" in three


def test_paths_and_what_models_were_asked_have_tables(words_only):
    metrics = copy.deepcopy(dict(words_only.metrics))
    before = {"success_before": 0.05, "over_shortest_before": None}
    metrics["paths"] = {"extrinsic": {"seed": 2, "starts": 60, "success": 0.95, "over_shortest": 0.254, **before}}
    asked = {"model": "tiny", "states": 111, "answers": 180, "unread": 9, "parse_rate": 0.95, "tokens_per_answer": 4.8}
    metrics["arms"]["preference"]["asked"] = asked
    metrics["further"] = {"success in MiniGrid-Empty-5x5-v0": {}}
    text = Page(render(dataclasses.replace(words_only, metrics=metrics))).text
    assert re.search(r"extrinsic\s+2\s+60\s+95%\s+0\.25\s+5%\s+-", text)
    assert re.search(r"preference\s+tiny\s+111\s+180\s+95\.0%\s+4\.80", text)
    assert "Success in a task is the share of its evaluation episodes that solved it; means and" in text
    assert "agents, without questions of a reward, which run.html counts; nothing is asked once" in text
    assert re.search(r"extrinsic +2 +60 +95% +0\.25", summary.table(metrics))
    bare = Page(render(words_only)).text
    assert "Paths before and after" not in bare
    assert "asked language models" not in bare


def test_a_reward_without_a_table_is_not_said_to_rank(words_only):
    """As novelty does where each episode meets as many captions."""
    none = {"tau": None, "episodes": 10, "arms": {}}
    unknown = {"kendall_tau_vs_return": None}
    page = Page(render(dataclasses.replace(words_only, vocabulary=None, rank=none, reward=unknown))).text
    assert "How good the reward model is" not in page
    assert "has no table of captions; its sums, or the returns, are the same in every episode." in page
    assert "There is no learned reward" not in page
    assert "Kendall" not in page
    assert "their ranks cannot be compared" not in page
    some = {"tau": 0.5, "episodes": 10, "arms": {}}
    page = Page(render(dataclasses.replace(words_only, vocabulary=None, rank=some))).text
    assert "There is no learned reward" not in page
    assert "Kendall's tau" in page
