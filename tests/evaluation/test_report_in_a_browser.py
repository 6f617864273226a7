"""The page of the report in a browser: what is drawn, and what it answers to."""

import dataclasses
import re

import pytest
from PIL import Image

from browser import FAULTS, Browser
from laurel.evaluation.animation import write_webp
from laurel.evaluation.report import Portrait, render


@pytest.fixture(scope="module")
def file(content, tmp_path_factory):
    """The page, with films of three pictures, and all that it may fold opened."""
    folder = tmp_path_factory.mktemp("page")
    pictures = [Image.new("RGB", (160, 120), color) for color in ("red", "green", "blue")]
    write_webp(pictures, [100, 100, 2500], folder / "film.webp")
    films = [Portrait(arm, 3, folder / "film.webp", "solved after 5 steps") for arm in ("extrinsic", "random_policy")]
    page = render(dataclasses.replace(content, animation=folder / "film.webp", portraits=films))
    (folder / "report.html").write_text(page.replace("<details>", "<details open>"))
    return folder / "report.html"


@pytest.mark.parametrize(
    "look",
    [{"width": 390}, {"width": 1280}, {"width": 1280, "dark": True}, {"width": 1032, "media": "print"}],
    ids=["phone", "screen", "dark", "print"],
)
def test_no_overlap_and_no_cut_table(browser: Browser, file, tmp_path, look) -> None:
    browser.look(**look)
    browser.open(file)
    assert browser.ask(FAULTS) == []
    for part in (".log", ".linear"):
        browser.ask(f"document.querySelector('.scales input{part if part == '.log' else ':not(.log)'}').click()")
        assert browser.ask(f"getComputedStyle(document.querySelector('figure{part}')).display") == "block"
        assert browser.ask(FAULTS) == []
    browser.screenshot(tmp_path / "page.png")
    with Image.open(tmp_path / "page.png") as image:
        assert 0 <= look["width"] - image.width < 20, "but for a scroll bar"
        assert (max(image.convert("RGB").getpixel((2, 2))) < 60) == look.get("dark", False)


def test_layout_checks_detect_errors(browser: Browser, file) -> None:
    browser.look()
    browser.open(file)
    browser.ask("document.querySelector('.arms').parentElement.style.overflow = 'visible'")
    browser.ask("document.querySelector('.arms').style.minWidth = '2000px'")
    browser.ask("document.querySelector('section:not(.box) > h2').style.marginBottom = '-3rem'")
    kinds = {fault.split()[0] for fault in browser.ask(FAULTS)}
    assert kinds == {"the", "cut:", "overlap:"}


def test_pointing_at_a_curve_shows_its_values(browser: Browser, file, content) -> None:
    browser.look()
    browser.open(file)
    for kind in ("linear", "log"):
        browser.ask(f"document.querySelector('.scales input{'.log' if kind == 'log' else ':not(.log)'}').click()")
        browser.ask(f"document.querySelector('figure.{kind} .canvas').scrollIntoView()")
        x, y, scale = browser.ask(
            f"(() => {{ const svg = document.querySelector('figure.{kind} svg'), b = svg.getBoundingClientRect(),"
            "s = svg.querySelector('[data-scale]').dataset.scale.split(' ').map(Number);"
            "const k = b.width / svg.viewBox.baseVal.width;"
            "return [b.left + k * (s[1] - .01), b.top + b.height / 2, s]; })()"
        )
        browser.point(x, y)
        shown = browser.ask(f"document.querySelector('figure.{kind} .readout').innerText").splitlines()
        assert int(shown[0].removesuffix(" steps").replace(",", "")) == pytest.approx(scale[5], rel=0.001)
        values = {row.split(": ")[0]: row.split(": ")[1] for row in shown[1:]}
        assert set(values) == {"extrinsic", "preference", "random policy"}
        assert re.fullmatch(r"\d+% \[\d+%, \d+%\]", values["preference"])
        mean = content.metrics["arms"]["random_policy"]["success"]["mean"]
        assert values["random policy"] == f"{100 * mean:.0f}%"
    browser.ask("document.querySelector('.chips button').click()")
    browser.point(x - 20, y)
    assert "extrinsic" not in browser.ask("document.querySelector('figure.log .readout').innerText")


def test_pairs_are_found_by_their_words(browser: Browser, file) -> None:
    browser.look()
    browser.open(file)
    count = "document.querySelector('[data-count]').textContent"
    assert browser.ask(count) == "2 of 2"
    browser.ask(
        "(() => { const e = document.querySelector('[data-filter=words]'); e.value = 'you LOSE';"
        "e.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    assert browser.ask(count) == "1 of 2"


def test_a_film_is_stopped_and_stepped(browser: Browser, file) -> None:
    browser.look()
    browser.open(file)
    film = "document.querySelector('.films figure')"
    assert browser.ask("document.querySelectorAll('.player').length") == 3
    seen = []
    for button in (1, 3, 3, 3, 2):  # stop, a step on three times (the last is the end), a step back
        browser.ask(
            f"(async () => {{ {film}.querySelector('button:nth-of-type({button})').click();"
            "await new Promise((done) => setTimeout(done, 60)); })()"
        )
        seen.append(
            browser.ask(
                f"[{film}.querySelector('.player input').value,"
                f"...{film}.querySelector('canvas').getContext('2d').getImageData(5, 5, 1, 1).data].map(Number)"
            )
        )
    red, green, blue = [0, 255, 0, 0, 255], [1, 0, 128, 0, 255], [2, 0, 0, 255, 255]
    assert seen == [red, green, blue, blue, green]
    assert browser.ask(f"{film}.querySelector('img')") is None
