import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import font_manager
from PIL import Image

from known_arms import KNOWN
from laurel.evaluation import plots
from laurel.evaluation.statistics import summarise
from laurel.evaluation.style import FONT, settings, styles
from laurel.evaluation.words import key_in_words

ARMS = tuple(KNOWN.values())
LOOKS = styles([KNOWN["extrinsic"], KNOWN["preference"]])
BINS = [{"p": 0.1, "observed": 0.2, "pairs": 10}, {"p": 0.5, "observed": 0.5, "pairs": 0}]


def drawn(results, curves, **extra):
    metrics = summarise(results, curves, ARMS, success_threshold=0.9, reward_threshold=None, draws=50, seed=0)
    return plots.draw(results, curves, metrics, draws=50, **extra)


@pytest.fixture(scope="module")
def figures(tables):
    results, curves = tables({"extrinsic": 0.1, "preference": 0.9, "random_policy": 0.0})
    return drawn(results, curves, calibration=BINS)


def test_an_installed_font_does_not_change_figures(tmp_path, monkeypatch):
    """Its glyphs may have other numbers, which SVG holds, as that of "fi"."""
    its, manager = tmp_path / "DejaVuSans.ttf", font_manager.fontManager
    shutil.copy(Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", its)
    monkeypatch.setattr(manager, "ttflist", [])
    manager.addfont(its)
    assert manager.findfont(FONT) == str(its)
    with settings():
        assert Path(mpl.get_data_path()) in Path(manager.findfont(FONT)).parents


def test_every_figure_is_drawn_and_written(figures, tmp_path):
    curves = {f"{name}{end}" for name in ("success_curve", "return_curve") for end in ("", "_log")}
    assert set(figures) == {*curves, "arms", "calibration", "reward_vs_return"}
    for name, figure in figures.items():
        plots.save(figure, tmp_path / "plots", name)
        width, height = figure.get_size_inches()
        with Image.open(tmp_path / "plots" / f"{name}.png") as image:
            assert image.size == pytest.approx((width * 200, height * 200), abs=1)
            assert np.asarray(image.convert("L")).std() > 5
        ET.parse(tmp_path / "plots" / f"{name}.svg")


def test_writing_a_figure_again_gives_the_same_bytes(figures, tmp_path):
    for name, figure in figures.items():
        whole = plots.save(figure, tmp_path, name)
        first = (tmp_path / f"{name}.png").read_bytes()
        assert plots.svg(figure) == whole, "also of what the files leave out"
        assert plots.save(figure, tmp_path, name) == whole
        assert (tmp_path / f"{name}.png").read_bytes() == first


def test_only_what_the_data_allows_is_drawn(tables):
    results, curves = tables({"extrinsic": 0.5}, success=False)
    found = drawn(results.assign(shaped_reward=np.nan), curves)
    assert set(found) == {"return_curve", "return_curve_log", "arms"}
    assert set(drawn(results, curves.head(0))) == {"arms", "reward_vs_return"}


def test_curve_ends_at_the_planted_level_and_every_line_is_named(tables):
    results, curves = tables({"extrinsic": 0.25, "preference": 0.9, "random_policy": 0.0})
    axes = drawn(results, curves)["success_curve"].axes[0]
    ends = {line.get_color(): line.get_ydata()[-1] for line in axes.lines}
    assert ends[LOOKS["extrinsic"].color] == pytest.approx(0.25)
    assert ends[LOOKS["preference"].color] == pytest.approx(0.9)
    names = {text.get_text(): text.get_position()[1] for text in axes.texts}
    low, high = axes.get_ylim()
    assert set(names) == {"extrinsic", "preference", "random policy"}
    assert low + names["preference"] * (high - low) == pytest.approx(0.9)


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.98])
def test_labels_of_lines_with_equal_ends_do_not_overlap(tables, rate):
    _, curves = tables(dict.fromkeys(KNOWN, rate))
    axes = plots.learning_curves(curves, "success_rate", ARMS, draws=20).axes[0]
    places = sorted(text.get_position()[1] for text in axes.texts)
    assert len(places) == 7
    assert np.diff(places).min() > 0.05
    assert places[0] >= 0.0
    assert places[-1] <= 1.0


def test_one_seed_has_no_shade(tables):
    _, curves = tables({"preference": 0.9}, seeds=1)
    axes = plots.learning_curves(curves, "success_rate", ARMS, draws=20).axes[0]
    assert np.isfinite(axes.lines[0].get_ydata()).any()
    assert all(len(path.vertices) == 0 for shade in axes.collections for path in shade.get_paths())


_SCRIPT = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.."]
from pathlib import Path
from conftest import make_tables
from test_plots import save_curve
save_curve(make_tables, Path(sys.argv[2]))
"""


def save_curve(tables, place):
    _, curves = tables({"extrinsic": 0.1, "preference": 0.9})
    plots.save(plots.learning_curves(curves, "success_rate", ARMS, draws=50), place, "curve")


def test_same_data_same_bytes_in_another_process(tables, tmp_path, request):
    save_curve(tables, tmp_path / "here")
    hash_seed = {"PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    command = [sys.executable, "-c", _SCRIPT, str(request.path.parent), str(tmp_path / "there")]
    subprocess.run(command, check=True, env={**os.environ, **hash_seed})
    for name in ("curve.svg", "curve.png"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    assert "<dc:date>" not in (tmp_path / "here" / "curve.svg").read_text()


def test_the_users_matplotlib_settings_are_neither_used_nor_changed(tables):
    _, curves = tables({"preference": 0.9})
    usual = plots.svg(plots.learning_curves(curves, "success_rate", ARMS, draws=20))
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        before = dict(mpl.rcParams)
        assert plots.svg(plots.learning_curves(curves, "success_rate", ARMS, draws=20)) == usual
        assert dict(mpl.rcParams) == before


def test_a_curve_of_one_point_is_seen(tables):
    _, curves = tables({"extrinsic": 0.25, "preference": 0.9})
    points = {"extrinsic": 1, "preference": 2}
    short = curves.groupby(["arm", "seed"], group_keys=False).apply(lambda rows: rows.head(points[rows.name[0]]))
    axes = plots.learning_curves(short.assign(success_rate=0.5), "success_rate", ARMS, draws=20).axes[0]
    markers = {line.get_color(): line.get_marker() for line in axes.lines}
    assert markers == {LOOKS["extrinsic"].color: "o", LOOKS["preference"].color: "None"}


def test_held_out_calibration_is_of_labels_that_may_be_soft(figures):
    """`observed` averages labels: probabilities, and one half for ties; a pair is predicted by up to two members."""
    (axes,) = figures["calibration"].axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted probability (area: predictions)", "mean label")
    assert key_in_words("brier").startswith("mean squared difference from held-out labels")
