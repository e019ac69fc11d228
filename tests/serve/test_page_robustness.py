"""The page in a browser: keyboard, narrow screens, errors, and services with few features."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from elmokit.embed.model import ElmoModel
from elmokit.search.build import IndexSettings, build_index
from elmokit.serve.server import Server
from elmokit.serve.settings import Settings
from tests.conftest import TINY_MODEL
from tests.serve.browser import Visit, textbox
from tests.serve.conftest import TEXT, running

pytestmark = pytest.mark.slow

PANELS = ("start", "sentences", "senses", "neighbors", "expectations", "tasks")
READ = "I read the book yesterday.\nCan you read the letter now?"


# ------------------------------------------------------------------------------------ accessibility


def test_keyboard_navigation(desk: Visit) -> None:
    page = desk.open("#start")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#tab-start").focus()
    page.keyboard.press("ArrowRight")
    desk.ready()
    assert page.evaluate("document.activeElement.id") == "tab-sentences"
    reached = []
    while page.keyboard.press("Tab") or page.evaluate("document.activeElement.tagName") != "BODY":
        seen, drawn = page.evaluate(
            "() => [document.activeElement.id || document.activeElement.className,"
            " getComputedStyle(document.activeElement).outlineStyle]"
        )
        assert drawn != "none", f"the focus on {seen} is not seen"
        reached.append(seen)
    assert {"sentences-text", "sentences-layers-range"} <= set(reached)
    assert sum(name.startswith("chip ") for name in reached) == 1  # one tab stop for all chips
    chosen = page.locator('.chip[aria-checked="true"]')
    chosen.focus()
    page.keyboard.press("ArrowRight")
    assert chosen.locator(".word").inner_text() == "the"
    assert page.evaluate("document.activeElement.getAttribute('aria-checked')") == "true"
    page.keyboard.press("End")
    assert chosen.locator(".word").inner_text() == "?"


@pytest.mark.parametrize("panel", PANELS)
def test_panels_fit_narrow_screens_without_layout_shifts(
    browser: Any, url: str, panel: str
) -> None:
    found = Visit(browser, url, "phone")
    page = found.page
    page.set_viewport_size({"width": 360, "height": 740})
    page.add_init_script(
        "window.shifted = 0; new PerformanceObserver((list) => { for (const e of list.getEntries())"
        " window.shifted += e.value; }).observe({type: 'layout-shift', buffered: true});"
    )
    found.open(f"#{panel}")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate("window.shifted") < 0.1
    nameless = page.locator(
        f"#panel-{panel} :is(input, textarea, select, button, [role=radio], [role=option])"
    ).evaluate_all(
        "all => all.filter((e) => e.offsetParent !== null && !(e.labels?.length ||"
        " e.getAttribute('aria-label') || e.textContent.trim())).map((e) => e.outerHTML)"
    )
    assert nameless == []
    found.close()


def test_light_and_dark_color_schemes(browser: Any, url: str) -> None:
    found = Visit(browser, url, "desk", color_scheme="dark")
    page = found.open("#senses")
    brightness = "Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"
    assert page.evaluate(brightness) < 60
    page.get_by_role("button", name="Light", exact=True).click()
    assert page.evaluate(brightness) > 200
    page.reload()
    assert page.evaluate(brightness) > 200
    page.get_by_role("button", name="Dark", exact=True).click()
    assert page.evaluate(brightness) < 60
    found.close()


# ------------------------------------------------------------------------- errors and slow services


def test_notices_for_invalid_input_and_connection_errors(desk: Visit) -> None:
    page = desk.open("#sentences")
    field = textbox(page, "Your sentences")
    notice = page.locator("#sentences-notice")
    field.fill("")
    page.wait_for_selector("#sentences-notice:has-text('Enter two sentences')")
    field.fill("word " * 300)
    page.wait_for_selector("#sentences-notice:has-text('256')")  # the notice contains the limit
    field.fill(READ)
    notice.wait_for(state="hidden")
    page.route("**/v1/similarity", lambda route: route.abort())
    field.fill("Is anybody there?")
    page.wait_for_selector("#sentences-notice:has-text('is not responding')")
    page.unroute("**/v1/similarity")
    field.fill("Is anybody there now?")
    notice.wait_for(state="hidden")
    assert all("Failed to load" in message for message in desk.wrong)
    assert len(desk.wrong) == 2
    desk.wrong.clear()


def test_requests_are_retried_while_the_service_is_busy(desk: Visit) -> None:
    turns: list[int] = []

    def busy(route: Any) -> None:
        turns.append(1)
        if len(turns) > 2:
            route.continue_()
            return
        error = {"error": {"message": "full"}}
        route.fulfill(status=429, headers={"Retry-After": "1"}, json=error)

    desk.page.route("**/v1/similarity", busy)
    page = desk.open("#sentences")
    page.wait_for_selector(".chip")
    assert len(turns) == 3
    assert page.locator("#sentences-notice").is_hidden()
    desk.wrong.clear()


def test_typing_is_debounced_and_the_last_input_wins(desk: Visit) -> None:
    page = desk.open("#sentences")
    asked: list[str] = []

    def slow(route: Any) -> None:
        asked.append(route.request.post_data)
        route.continue_()

    page.route("**/v1/similarity", slow)
    field = textbox(page, "Your sentences")
    field.fill("")
    field.press_sequentially("The dog barks at the cat.", delay=5)
    page.wait_for_selector(".chip:has-text('barks')")
    desk.ready()
    assert len(asked) <= 3
    assert json.loads(asked[-1])["sentences"] == ["The dog barks at the cat."]
    page.wait_for_url(re.compile("barks"))
    page.go_back()  # all of the typing is one history entry
    desk.ready()
    assert field.input_value() == READ


def test_long_texts_do_not_freeze_the_page(desk: Visit) -> None:
    page = desk.open("#sentences")
    page.evaluate(
        "() => { let last = performance.now(); window.stood = 0; setInterval(() => {"
        " const now = performance.now(); window.stood = Math.max(window.stood, now - last);"
        " last = now; }, 20); }"
    )
    textbox(page, "Your sentences").fill("word " * 100_000)
    page.wait_for_selector("#sentences-notice:has-text('100,000 tokens')")
    page.locator("#tab-expectations").click()
    desk.ready()
    textbox(page, "Your sentence").fill("one word and another " * 50)
    page.wait_for_selector(".place:nth-child(200)")
    desk.ready()
    page.locator(".place").nth(190).click()  # more positions than are requested at once
    page.wait_for_selector("#expectations-combined li")
    desk.ready()
    assert page.locator("#expectations-combined li").count() == 8
    assert page.evaluate("window.stood") < 3000  # milliseconds, on a busy machine
    assert ["Failed to load" in message for message in desk.wrong] == [True]
    desk.wrong.clear()


def test_texts_that_are_too_long_for_a_link_are_kept(desk: Visit) -> None:
    page = desk.open("#expectations")
    long = " ".join("abcdefghij" * 8 + str(i) for i in range(160))
    textbox(page, "Your sentence").fill(long)
    page.wait_for_selector(".place:nth-child(160)", state="attached")
    assert len(page.url) < 200
    page.get_by_role("button", name="Copy link").click()
    assert "too long for a link" in desk.text("#status")
    page.reload()
    desk.ready()
    assert textbox(page, "Your sentence").input_value() == long


def test_markup_in_texts_is_escaped(desk: Visit) -> None:
    dialogs: list[Any] = []
    desk.page.on("dialog", lambda dialog: dialogs.append(dialog))
    page = desk.open("#sentences")
    evil = "<img src=x onerror=alert(1)> <script>alert(2)</script>\n\"'><b>bold</b>"
    textbox(page, "Your sentences").fill(evil)
    page.wait_for_selector(".chip:has-text('onerror')")
    desk.ready()
    for panel in ("senses", "expectations", "neighbors", "tasks"):
        query = urlencode({"x": evil.replace("\n", " "), "w": "alert"})
        page.goto(f"{desk.url}/#{panel}?{query}")
        desk.ready()
    assert page.locator("main :is(img, script)").count() == 0
    assert dialogs == []


# ----------------------------------------------------------------------------------- other services


@pytest.fixture(scope="module")
def bare() -> Iterator[Server]:
    """Run a service with a token and only a model without a language-model head."""
    settings = Settings(port=0, models={"tiny": str(TINY_MODEL)}, device="cpu", token="sesame")
    with running(settings) as found:
        yield found


def test_token_is_requested_and_missing_features_are_explained(browser: Any, bare: Server) -> None:
    found = Visit(browser, bare.url, "phone")
    page = found.open("#sentences")
    field = page.locator("#token")
    field.fill("wrong")
    field.press("Enter")
    page.wait_for_selector("#token-form:not([hidden])")
    field.fill("sesame")
    field.press("Enter")
    page.wait_for_selector(".chip")
    assert "sesame" not in page.url
    for panel, said in (
        ("neighbors", "elmo index TEXT"),
        ("expectations", "no LM head"),
        ("tasks", "elmo task ner train"),
    ):
        page.locator(f"#tab-{panel}").click()
        assert said in found.text(f"#{panel}-help")
        assert page.locator(f"#{panel}-body").is_hidden()
    page.reload()  # the window remembers the token
    page.wait_for_selector("#footer:has-text('tiny')")
    assert all("401" in message for message in found.wrong)
    found.wrong.clear()
    found.close()


@pytest.fixture(scope="module")
def topmost(tiny: ElmoModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a service whose index has only the top layer."""
    folder = tmp_path_factory.mktemp("topmost")
    (folder / "text.txt").write_text(TEXT)
    build_index(tiny, [folder / "text.txt"], folder / "index", IndexSettings(layer=("top",)))
    settings = Settings(
        port=0, models={"tiny": str(TINY_MODEL)}, index=folder / "index", device="cpu"
    )
    with running(settings) as found:
        yield found


def test_custom_mix_of_layers_missing_from_the_index_shows_a_notice(
    browser: Any, topmost: Server
) -> None:
    found = Visit(browser, topmost.url, "desk")
    page = found.open("#neighbors?x=I+read+the+book+.&w=read")
    assert page.locator("#neighbors-hits li").count() > 0
    page.get_by_role("radio", name="Custom mix").click()
    found.ready()
    assert page.locator("#neighbors-layers .dial").count() == 0
    assert "rebuild the index without --layer" in found.text("#neighbors-layers")
    assert "has no vectors for the custom mix" in found.text("#neighbors-finding")
    assert page.locator("#neighbors-hits li").count() == 0
    found.close()
