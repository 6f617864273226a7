"""Plug-ins are found by file name in our packages and by entry point in others, and imported only when loaded."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from installed import install as write
from laurel.errors import MissingPackageError, ParamsError
from laurel.params import parse_params
from laurel.params.fields import Section
from laurel.plugins import Plugins, blame
from minimal_params import MINIMAL

COLOURS = Plugins[str]("colour", group="laurel.test_colours", package="colours_of_ours", called=False)
CODED = Plugins[type]("colour", group="laurel.test_colours", package="colours_of_ours", texts=("code",))
CALLED = Plugins[type]("colour", group="laurel.test_colours", package="colours_of_ours", needs=("code",))


@pytest.fixture(autouse=True)
def _ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    package = tmp_path / "colours_of_ours"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('listing imports nothing')")
    for name, content in {"red": "COLOUR = '#f00'", "blue": "COLOUR = '#00f'", "_mixing": ""}.items():
        (package / f"{name}.py").write_text(content)


def install(folder: Path, **entries: str) -> None:
    """Write what an installed distribution with these entry points leaves on the path."""
    write(folder, "others", {COLOURS.group: entries})


def test_kinds_are_files_and_entry_points_and_listing_them_imports_nothing(tmp_path: Path) -> None:
    assert COLOURS.kinds() == ("blue", "red"), "a helper's name begins with an underscore"
    install(tmp_path, teal="no_such_module")
    assert COLOURS.kinds() == ("blue", "red", "teal")


def test_a_plug_in_is_the_attribute_of_its_module_or_what_an_entry_point_names(tmp_path: Path) -> None:
    (tmp_path / "colours_of_ours/__init__.py").write_text("")
    (tmp_path / "paints.py").write_text("COLOUR = '#088'\nPINK = '#f8a'\n")
    install(tmp_path, teal="paints", pink="paints:PINK")
    assert [COLOURS.load(kind, "paint.colour") for kind in ("red", "teal", "pink")] == ["#f00", "#088", "#f8a"]


def test_an_unknown_kind_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    install(tmp_path, magenta="paints")
    with pytest.raises(
        ParamsError, match=r'^paint\.colour: there is no colour "bleu". Did you mean "blue"\? There are '
    ):
        COLOURS.load("bleu", "paint.colour")
    with pytest.raises(
        ParamsError, match=r'Did you mean "magenta"\? There are blue, red, magenta; another package can add'
    ):
        COLOURS.load("magneta", "paint.colour")


def test_a_plug_in_of_another_package_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken_paints.py").write_text("1 / 0")
    (tmp_path / "no_paints.py").write_text("")
    install(tmp_path, teal="no_such_module", pink="broken_paints", grey="no_paints", plum="no_paints:PLUM")
    begin = r'^paint\.colour: the colour "{}" \({}\) of another package cannot be loaded: {}'
    for kind, value, why in (
        ("teal", "no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("pink", "broken_paints", "ZeroDivisionError"),
        ("plum", "no_paints:PLUM", "AttributeError"),
    ):
        with pytest.raises(MissingPackageError, match=begin.format(kind, value, why)):
            COLOURS.load(kind, "paint.colour")
    with pytest.raises(ParamsError, match=begin.format("grey", "no_paints", "its module has no COLOUR")):
        COLOURS.load("grey", "paint.colour")


def test_a_class_of_a_section_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    sectioned = Plugins[type]("colour", group=COLOURS.group, package=COLOURS.package, section=("Params", Section))
    head = "from laurel.params.fields import Section\nclass COLOUR:\n    "
    for module, body in {
        "of_ours": "class Params(Section): pass",
        "plain": "class Params: pass",
        "bare": "pass",
    }.items():
        (tmp_path / f"{module}.py").write_text(head + body)
    install(tmp_path, teal="of_ours", pink="plain", grey="bare")
    assert issubclass(sectioned.load("teal", "paint.colour").Params, Section)  # type: ignore[attr-defined]
    needed = r"its Params is <class '.*Params'>, but a subclass of laurel\.params\.fields\.Section is required\."
    for kind, why in (("pink", needed), ("grey", r"its class COLOUR does not define Params\.")):
        with pytest.raises(ParamsError, match=f"cannot be loaded: {why}"):
            sectioned.load(kind, "paint.colour")


def test_a_name_is_used_once(tmp_path: Path) -> None:
    install(tmp_path, red="paints")
    with pytest.raises(ParamsError, match=r'another package names its colour paints "red", which is built in'):
        COLOURS.load("blue", "paint.colour")


@pytest.mark.parametrize(
    ("group", "name", "section"),
    [
        ("laurel.algorithms", "steps", {"agent": {"algorithm": "steps"}}),
        ("laurel.algorithms", "sb3", {"arms": {"theirs": {"reward": None, "agent": {"algorithm": "sb3"}}}}),
        ("laurel.annotators", "judges", {"annotate": {"annotator": "judges"}}),
    ],
)
def test_a_plug_in_whose_section_would_be_another_setting_is_refused(
    tmp_path: Path, group: str, name: str, section: dict[str, Any]
) -> None:
    write(tmp_path, "theirs", {group: {name: "their_module"}})
    parse_params(MINIMAL, "params.yaml")
    with pytest.raises(
        ParamsError, match=rf'"{name}" of another package, whose section would be \w+\.{name}, but that'
    ):
        parse_params({**MINIMAL, **section}, "params.yaml")


def test_an_arms_algorithm_whose_package_is_not_installed_is_named_as_such() -> None:
    arms = {"theirs": {"reward": None, "agent": {"algorithm": "linear", "linear": {"n_steps": 32}}}}
    with pytest.raises(ParamsError, match=r'arms\.theirs\.agent has algorithm "linear", but must name one of a2c, .*'):
        parse_params({**MINIMAL, "arms": arms}, "params.yaml")


def test_what_is_no_class_or_an_unfinished_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "their_colours.py").write_text("COLOUR = 5\n")
    unfinished = "import abc\nclass Hue(abc.ABC):\n    @abc.abstractmethod\n    def mix(self): ...\n"
    (tmp_path / "their_hues.py").write_text(f"{unfinished}COLOUR = Hue\n")
    (tmp_path / "their_shades.py").write_text("class COLOUR: pass\n")
    (tmp_path / "their_tints.py").write_text("class COLOUR: code = 5\n")
    install(tmp_path, five="their_colours", hue="their_hues", shade="their_shades", tint="their_tints")
    with pytest.raises(ParamsError, match=r'"five" \(their_colours\) .* cannot be loaded: it is 5, but a class is req'):
        CALLED.load("five", "paint.colour")
    with pytest.raises(ParamsError, match=r'"hue" .* cannot be loaded: its class Hue does not define mix, code\.'):
        CALLED.load("hue", "paint.colour")
    with pytest.raises(ParamsError, match=r'"shade" .* cannot be loaded: its class COLOUR does not define code\.'):
        CALLED.load("shade", "paint.colour")
    with pytest.raises(ParamsError, match=r'"tint" .* cannot be loaded: its code is 5, but a text is required\.'):
        CODED.load("tint", "paint.colour")


LISTING = Plugins[type](
    "colour", group="laurel.test_colours", package="colours_of_ours", lists={"mixes": ("red", "blue")}
)


@pytest.mark.parametrize("mixes", ["'red'", "('green',)", "[['red']]", "1"])
def test_a_plug_in_lists_known_names_alone(tmp_path: Path, mixes: str) -> None:
    (tmp_path / "their_paint.py").write_text(f"class COLOUR:\n    mixes = {mixes}\n")
    (tmp_path / "their_paints.py").write_text("class COLOUR:\n    mixes = 'blue', 'red'\n")
    install(tmp_path, teal="their_paint", purple="their_paints")
    LISTING.load("purple", "paint.colour")
    with pytest.raises(ParamsError, match=r"its mixes is .*, but a tuple with any of red, blue is required\."):
        LISTING.load("teal", "paint.colour")


def test_an_exception_in_another_packages_plug_in_is_put_down_to_it(tmp_path: Path) -> None:
    (tmp_path / "their_paint.py").write_text(
        "class COLOUR:\n    code = 1\n    def mix(self):\n        return {}['left']\n"
    )
    install(tmp_path, paint="their_paint")
    paint = CALLED.load("paint", "paint.colour")
    with pytest.raises(KeyError) as theirs:
        paint().mix()
    assert str(blame(theirs.value)) == (
        "The colour \"paint\" (their_paint) of another package raised KeyError in COLOUR.mix: 'left'. Fix that "
        "package; --debug shows where."
    )
    (tmp_path / "their_brush.py").write_text("from their_tools import COLOUR\n")
    (tmp_path / "their_tools.py").write_text((tmp_path / "their_paint.py").read_text())
    write(tmp_path, "more", {COLOURS.group: {"brush": "their_brush"}})
    brush = CALLED.load("brush", "paint.colour")
    with pytest.raises(KeyError) as defined_elsewhere:
        brush().mix()
    assert str(blame(defined_elsewhere.value)).startswith('The colour "brush" (their_brush) of another package raised')
    folder = tmp_path / "their_studio"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "paints.py").write_text("class COLOUR:\n    code = 1\n")
    (folder / "mixing.py").write_text("def mix():\n    return {}['left']\n")  # as a learner in a file of its own
    write(tmp_path, "studio", {COLOURS.group: {"studio": "their_studio.paints"}})
    CALLED.load("studio", "paint.colour")
    with pytest.raises(KeyError) as of_the_package:
        importlib.import_module("their_studio.mixing").mix()
    assert str(blame(of_the_package.value)).startswith('The colour "studio" (their_studio.paints) of another package r')
    with pytest.raises(ZeroDivisionError) as ours:
        _ = 1 / 0
    assert blame(ours.value) is None


def test_a_plug_in_that_does_not_take_what_it_is_called_with_is_named(tmp_path: Path) -> None:
    (tmp_path / "old_paint.py").write_text("class COLOUR:\n    code = 1\n    def mix(self, left): pass\n")
    install(tmp_path, old="old_paint")
    old = CALLED.load("old", "paint.colour")
    for named, options in (
        ("got an unexpected keyword argument 'wet'", {"left": 1, "wet": True}),
        ("missing 1 required positional argument: 'left'", {}),
    ):
        with pytest.raises(TypeError) as theirs:
            old().mix(**options)
        assert str(blame(theirs.value)) == (
            'The colour "old" (old_paint) of another package does not take the arguments of COLOUR.mix: COLOUR.mix() '
            f"{named}. Fix that package; --debug shows where."
        )
    with pytest.raises(TypeError) as elsewhere:
        int([])  # type: ignore[call-overload]
    assert blame(elsewhere.value) is None
