from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from laurel.errors import AnnotationError
from laurel.llm import encoder as encoder_module
from laurel.llm.encoder import PACKAGED, SentenceEncoder, load_encoder, packaged_path

torch.set_num_threads(1)
TEXTS = [
    "You turn.",
    "You bump into a wall.",
    "You unlock the yellow door with the key.",
    "",
    "The cart stands a little to the left, " * 5,
    "日本語のテキスト 🎉 naïve café \u200b\u0301",
    "x" * 10_000,
]
LONG = "key " * 2500


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return load_encoder(PACKAGED)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work offline, and fail on any network connection."""

    def refuse(*_: Any) -> None:
        raise AssertionError("something was to be fetched")

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # read when it was imported
    monkeypatch.setattr(socket.socket, "connect", refuse)


# -- the packaged encoder ---------------------------------------------------------------------------------------
def test_vectors_have_unit_norm(encoder: SentenceEncoder) -> None:
    vectors = encoder.encode([*TEXTS, LONG])
    assert vectors.shape == (len(TEXTS) + 1, 384)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert encoder.encode([]).shape == (0, 384)


def test_a_vector_does_not_depend_on_what_is_encoded_with_it(
    encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = encoder.encode(TEXTS)
    np.testing.assert_allclose(encoder.encode(TEXTS[::-1])[::-1], together, atol=1e-5)
    np.testing.assert_allclose(np.concatenate([encoder.encode([text]) for text in TEXTS]), together, atol=1e-5)
    monkeypatch.setattr(encoder_module, "BATCH", 3)
    np.testing.assert_allclose(encoder.encode(TEXTS), together, atol=1e-5)


def test_a_vector_is_the_normalised_mean_of_its_tokens(encoder: SentenceEncoder) -> None:
    """Pooled by hand, one text at a time, without padding."""
    text = TEXTS[2]
    tokens = AutoTokenizer.from_pretrained(packaged_path())(text, return_tensors="pt")
    assert tokens["attention_mask"].all()
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(packaged_path())(**tokens).last_hidden_state[0].numpy().astype(np.float64)
    mean = sum(hidden) / len(hidden)
    by_hand = mean / np.sqrt((mean**2).sum())
    vectors = encoder.encode(["You turn.", text, "A much longer text, " * 10])
    np.testing.assert_allclose(vectors[1], by_hand, atol=1e-5)


def test_the_packaged_model_is_the_one_that_transformers_loads(
    encoder: SentenceEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, also of texts with padding, of more tokens than there are places, and in letters that it lacks."""
    monkeypatch.setattr(encoder_module, "BATCH", 8)  # so that few are padded to the longest
    words = ["you", "unlock", "the", "yellow", "door", "with", "a", "key,", "turn", "left;", "it", "opens!"]
    rng = np.random.default_rng(0)
    texts = [*TEXTS, LONG, *(" ".join(rng.choice(words, n)) for n in rng.integers(1, 40, size=80))]
    np.testing.assert_array_equal(encoder.encode(texts), load_encoder(str(packaged_path())).encode(texts))


def test_the_packaged_model_is_loaded_without_transformers() -> None:
    """Whose import takes two processor seconds of each process."""
    code = (
        "import sys; from laurel.llm.encoder import PACKAGED, load_encoder; load_encoder(PACKAGED).encode(['You go.']);"
        "print('transformers' in sys.modules, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]


def test_meaning_not_spelling(encoder: SentenceEncoder) -> None:
    goal, near, far = encoder.encode(
        ["Use the key to open the door.", "You unlock the yellow door with the key.", "You bump into a wall."]
    )
    assert goal @ near > goal @ far + 0.2


def test_long_texts_are_cut_where_the_model_ends(encoder: SentenceEncoder) -> None:
    first, second = encoder.encode([LONG + "door", LONG + "wall"])
    np.testing.assert_allclose(first, second, atol=1e-6)


# -- others -----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT with random weights, saved as transformers does; its tokenizer does not say how long a text may be."""
    from transformers import BertConfig, BertModel, BertTokenizer

    path = tmp_path_factory.mktemp("tiny") / "bert"
    path.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "you", "turn", ".", "go", "##al"]
    (path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(path)
    BertTokenizer(str(path / "vocab.txt")).save_pretrained(path)
    return path


def test_texts_that_are_cut_are_told_once(encoder: SentenceEncoder, capsys: pytest.CaptureFixture[str]) -> None:
    encoder._warned = False
    for _ in range(2):
        encoder.encode(["short", "a " * 1000, "b " * 2000])
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (f"2 of 3 texts fill the 512 tokens that {encoder.name} reads: what comes after them has no effect.")


def test_a_model_in_a_directory(tiny: Path) -> None:
    encoder = load_encoder(str(tiny))
    assert encoder.name == str(tiny)
    vectors = encoder.encode(["You turn.", "goal", "you turn . " * 100])
    assert vectors.shape == (3, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert not np.allclose(vectors[0], vectors[1], atol=1e-3)
    np.testing.assert_array_equal(load_encoder(str(tiny)).encode(["goal"]), encoder.encode(["goal"]))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nobody/has-this-model", "couldn't find"),
        ("", "Repo id must"),
        ("a//b", "Repo id must"),
        ("/no/such/directory", "there is no such directory"),
        ("./no/such/directory", "there is no such directory"),
        ("smollm2", "it is a chat model, of which a reward model of texts is made by --train all"),
    ],
)
def test_an_unknown_name(name: str, reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AnnotationError) as caught:
        load_encoder(name)
    sentence = str(caught.value)
    assert sentence.startswith(f'Sentence encoder "{name}" cannot be loaded: ')
    assert reason in sentence
    assert sentence.endswith(
        f'. Give a directory with a transformers model, a name on the Hugging Face hub, or "{PACKAGED}".'
    )
    assert "\n" not in sentence
    assert ".." not in sentence.replace(name, "")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    assert capfd.readouterr().out == ""


DAMAGE = [
    ("model.safetensors", None),
    ("model.safetensors", b""),
    ("model.safetensors", b"\xff" * 100),
    ("config.json", None),
    ("config.json", b""),
    ("config.json", b"{}"),
    ("config.json", b"[]"),
    ("config.json", b'{"model_type": "bert", "hidden_size": "wide"}'),
    ("tokenizer.json", b""),
    ("tokenizer.json", b"{}"),
    ("tokenizer.json", b"[]"),
    ("tokenizer_config.json", b"["),
    ("tokenizer_config.json", b"[]"),
]


def test_weights_in_a_pickle_are_not_opened(tiny: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    shutil.copytree(tiny, tmp_path / "bert")
    torch.save(load_file(tmp_path / "bert" / "model.safetensors"), tmp_path / "bert" / "pytorch_model.bin")
    (tmp_path / "bert" / "model.safetensors").unlink()
    with pytest.raises(AnnotationError, match="safetensors"):
        load_encoder(str(tmp_path / "bert"))


def test_code_that_a_model_brings_is_neither_run_nor_asked_about(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "bert")
    config = json.loads((tmp_path / "bert" / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}}
    (tmp_path / "bert" / "config.json").write_text(json.dumps(config))
    (tmp_path / "bert" / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(AnnotationError):
        load_encoder(str(tmp_path / "bert"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("file", "content"), DAMAGE)
def test_a_damaged_directory(tiny: Path, tmp_path: Path, file: str, content: bytes | None) -> None:
    shutil.copytree(tiny, tmp_path / "bert")
    if content is None:
        (tmp_path / "bert" / file).unlink()
    else:
        (tmp_path / "bert" / file).write_bytes(content)
    with pytest.raises(AnnotationError, match="cannot be loaded: ") as caught:
        load_encoder(str(tmp_path / "bert"))
    assert "\n" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_a_model_of_another_size_than_its_weights(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "bert")
    config = json.loads((tmp_path / "bert" / "config.json").read_text())
    (tmp_path / "bert" / "config.json").write_text(json.dumps({**config, "vocab_size": 99}))
    with pytest.raises(AnnotationError, match="cannot be loaded: "):
        load_encoder(str(tmp_path / "bert"))


@pytest.mark.parametrize(("mode", "place"), [("cls_token", 0), ("lasttoken", -1)])
def test_pooling_follows_the_folders_configuration(tiny: Path, tmp_path: Path, mode: str, place: int) -> None:
    folder = pooled_by(tmp_path, tiny, mode)
    texts = ["key", "key door key"]  # the first is padded
    vectors = load_encoder(str(folder)).encode(texts)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    for text, vector in zip(texts, vectors, strict=True):
        with torch.inference_mode():
            hidden = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, place]
        np.testing.assert_allclose(vector, (hidden / hidden.norm()).numpy(), atol=1e-5)


def test_an_unknown_way_to_make_vectors(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(AnnotationError, match="its pooling, max_tokens, is not supported"):
        load_encoder(str(pooled_by(tmp_path, tiny, "max_tokens")))


def pooled_by(place: Path, model: Path, mode: str) -> Path:
    folder = shutil.copytree(model, place / mode)
    (folder / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{name}": name == mode for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
    settings = {"word_embedding_dimension": 32, **modes, "include_prompt": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    return folder


def test_a_model_that_is_not_a_sentence_encoder(tiny: Path, tmp_path: Path) -> None:
    """A language model of the GPT kind has no padding token."""
    shutil.copytree(tiny, tmp_path / "bert")
    file = tmp_path / "bert" / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "pad_token": None}))
    with pytest.raises(AnnotationError, match="its tokenizer has no padding"):
        load_encoder(str(tmp_path / "bert"))


def test_character_encoder_distinguishes_spellings_without_a_model() -> None:
    encoder = load_encoder("characters")
    texts = ["You kill the newt!", "You kill the jackal!", "The door opens.", ""]
    rows = encoder.encode(texts)
    assert (rows == np.concatenate([encoder.encode([text]) for text in texts])).all()
    assert np.square(rows).sum(axis=1) == pytest.approx([1, 1, 1, 0], abs=1e-4)
    assert rows[0] @ rows[1] > 0.4 > rows[0] @ rows[2]
