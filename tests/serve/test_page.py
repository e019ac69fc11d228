"""The page in a real browser, used as a person would, at the size of a desk and of a phone.

`ELMOKIT_SCREENSHOTS=docs/img` writes the pictures of docs/explorer.md anew.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from PIL import Image

from elmokit.serve.server import Server
from elmokit.serve.settings import Settings
from elmokit.tasks.classify import Guess
from elmokit.tasks.coref import Coref, Resolved
from elmokit.tasks.documents import Mention
from elmokit.tasks.ner import Ner
from elmokit.tasks.propbank import Frame
from elmokit.tasks.snli import Snli
from elmokit.tasks.squad import Answer, Squad
from elmokit.tasks.srl import Srl
from elmokit.tasks.sst5 import Sst5
from elmokit.tasks.task import Task
from elmokit.text.lines import Line
from tests.conftest import TINY_MODEL
from tests.serve import browser as tools
from tests.serve.browser import Visit
from tests.serve.conftest import running

pytestmark = pytest.mark.slow

PANELS = ("start", "sentences", "senses", "neighbours", "expectations", "tasks")
READ = "I read the book yesterday.\nCan you read the letter now?"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with tools.launched() as found:
        yield found


@pytest.fixture(scope="module")
def url(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bundled model, an index of a part of the example text, a small tagger, static vectors."""
    folder = tmp_path_factory.mktemp("page")
    index, names = tools.make_index(folder), tools.make_ner(folder)
    static = tools.make_static(folder)
    with tools.serving("--index", index, "--task", f"names={names}", "--static", static) as found:
        yield found


@pytest.fixture(params=sorted(tools.SIZES))
def visit(browser: Any, url: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    found = Visit(browser, url, request.param)
    yield found
    found.close()


@pytest.fixture
def desk(browser: Any, url: str) -> Iterator[Visit]:
    found = Visit(browser, url, "desk")
    yield found
    found.close()


def textbox(page: Any, name: str) -> Any:
    return page.get_by_role("textbox", name=re.compile(rf"^{name}\b"))


def numbers(text: str) -> list[float]:
    return [float(found.replace("−", "-")) for found in re.findall(r"[−-]?\d*\.\d+", text)]


# ------------------------------------------------------------------------------------- the panels


def test_start_shows_one_word_with_many_vectors(visit: Visit) -> None:
    page = visit.open("")
    rows = page.locator("#start-pairs tbody tr")
    assert numbers(rows.nth(0).inner_text()) == [1.0, 1.0]
    near, far = numbers(rows.nth(1).inner_text())
    assert 1 > near > far
    page.get_by_role("radio", name="left").click()
    visit.ready()
    assert "left" in page.locator("#start-uses").inner_text()
    near, far = numbers(rows.nth(1).inner_text())
    assert near - far > 0.3
    page.locator(".ways").get_by_role("link", name="Senses").click()
    visit.ready()
    assert page.url.endswith("#senses")
    page.go_back()
    visit.ready()
    assert page.get_by_role("radio", name="left").get_attribute("aria-checked") == "true"
    page.go_back()
    assert page.get_by_role("radio", name="play").get_attribute("aria-checked") == "true"


def test_sentences_by_hand(visit: Visit) -> None:
    page = visit.open("#sentences")
    textbox(page, "Your sentences").fill("The bank lent us money.\nWe sat on the bank.")
    page.wait_for_selector(".chip:has-text('lent')")
    visit.ready()
    banks = page.locator(".chip", has_text="bank")
    banks.nth(1).click()
    assert banks.nth(1).get_attribute("aria-checked") == "true"
    top = numbers(banks.nth(0).inner_text())[0]
    assert top < 0.95
    # Layer 0 knows no context: there both are one vector.
    page.locator("#sentences-layers-range").press("Home")
    assert "cosine 1.00" in str(banks.nth(0).get_attribute("aria-label"))
    assert "the letters alone" in visit.text("#sentences-layers")
    path = numbers(visit.text("#sentences-finding"))[:3]
    assert path[0] == 1
    assert path[2] == pytest.approx(top, abs=0.006)
    # The table has a column for every layer; the heat map a cell for every pair.
    head = page.locator("#sentences-table thead").inner_text().split()[1:]
    assert [head[i : i + 2] for i in (0, 2, 4)] == [["layer", str(i)] for i in range(3)]
    assert page.locator("#sentences-table tbody tr").count() == 8
    page.get_by_role("button", name="Show all").click()
    assert page.locator("#sentences-table tbody tr").count() == 11
    assert page.locator("#sentences-heat tbody td").count() == 6 * 6
    page.get_by_label("Sentence in the columns").select_option("0")
    diagonal = page.locator("#sentences-heat tbody tr").nth(0).locator("td").nth(0)
    assert numbers(diagonal.inner_text()) == [1.0]


def test_a_mix_by_hand_is_in_the_link(visit: Visit) -> None:
    page = visit.open("#sentences")
    page.get_by_role("radio", name="A mix by hand").click()
    chip = page.locator(".chip", has_text="yesterday")
    average = numbers(chip.inner_text())
    for layer in (0, 1):
        page.locator(f"#sentences-layers-s{layer}").press("Home")
    assert "1.00" in page.locator("#sentences-layers .dial").nth(2).inner_text()
    mixed = numbers(chip.inner_text())
    assert mixed != average
    column = page.locator("#sentences-table tbody tr").nth(0).locator("td")
    assert column.last.inner_text() == column.nth(2).inner_text()  # nothing but layer 2 is in it
    length = numbers(visit.text("#sentences-layers .mix-note"))[0]
    page.locator("#sentences-layers-gamma").press("End")
    longer = numbers(visit.text("#sentences-layers .mix-note"))[0]
    assert longer == pytest.approx(3 * length, rel=0.02)
    assert numbers(chip.inner_text()) == mixed
    page.wait_for_url(re.compile(r"g=3"))
    seen = page.locator("#sentences-result").inner_text()
    visit.open(page.url.removeprefix(visit.url + "/"))
    assert page.locator("#sentences-result").inner_text() == seen
    page.locator("#sentences-layers-s2").press("Home")
    assert "All weights are 0" in visit.text("#sentences-layers")


def test_back_and_forward(desk: Visit) -> None:
    page = desk.open("#sentences")
    page.get_by_role("button", name="play", exact=True).click()
    desk.ready()
    page.locator(".chip", has_text="garden").click()
    page.locator("#sentences-layers-range").press("ArrowLeft")
    page.locator("#sentences-layers-range").press("ArrowLeft")
    chosen = page.locator('.chip[aria-checked="true"] .word')
    slider = page.locator("#sentences-layers-range")
    assert (chosen.inner_text(), slider.input_value()) == ("garden", "0")
    page.go_back()  # the slider: one step, however long it was drawn
    assert (chosen.inner_text(), slider.input_value()) == ("garden", "2")
    page.go_back()
    assert chosen.inner_text() == "play"
    page.go_back()
    desk.ready()
    assert chosen.inner_text() == "read"
    assert textbox(page, "Your sentences").input_value() == READ
    for _ in range(3):
        page.go_forward()
        desk.ready()
    assert chosen.inner_text() == "garden"


def test_senses_part_as_layers_rise(visit: Visit) -> None:
    page = visit.open("#senses")
    page.get_by_role("button", name="play", exact=True).click()
    visit.ready()
    points = page.locator("#senses-plane .point")
    assert points.count() == 16
    slider = page.locator("#senses-layers-range")
    slider.press("Home")
    assert _places(page) == 1
    assert "16 uses, one place" in page.locator("#senses-plane").text_content()
    assert page.locator("#senses-static circle").count() == 1
    still = page.locator("#senses-static").inner_html()
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    assert _places(page) == 16
    assert page.locator("#senses-static").inner_html() == still
    assert "theatre (6)" in visit.text("#senses-legend")
    page.get_by_role("radio", name="By found cluster").click()
    assert "cluster 2" in visit.text("#senses-legend")
    # Sentences are read by pointing, by keys, and in the list.
    points.nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert "national team" in visit.text("#senses-caption")
    page.locator("#senses-list button").nth(7).click()
    assert "about her family" in visit.text("#senses-caption")
    assert points.nth(7).get_attribute("aria-selected") == "true"
    points.nth(12).scroll_into_view_if_needed()
    box = points.nth(12).locator(".mark").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert "piano" in visit.text("#senses-caption")
    page.mouse.move(2, 2)
    assert "about her family" in visit.text("#senses-caption")


def test_senses_of_my_own_sentences(desk: Visit) -> None:
    page = desk.open("#senses")
    page.get_by_text("yours to change").click()
    textbox(page, "One in each line").fill("I read it. | now\nI read it then. | then\nNo more.")
    textbox(page, "The word").fill("read")
    page.wait_for_selector("#senses-finding:has-text('Without the word: line 3')")
    assert page.locator("#senses-plane .point").count() == 2
    textbox(page, "The word").fill("")
    page.wait_for_selector("#senses-notice:has-text('Which word is it?')")
    desk.wrong.clear()  # the word was half typed, and is in no sentence


def _places(page: Any) -> int:
    found = page.locator("#senses-plane .point").evaluate_all(
        "points => points.map((p) => p.style.transform)"
    )
    return len(set(found))


def test_neighbours_in_a_text(visit: Visit) -> None:
    page = visit.open("#neighbours")
    hits = page.locator("#neighbours-hits li")
    assert hits.count() == 10
    scores = [numbers(text)[0] for text in hits.locator(".score").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    assert hits.locator("b").first.inner_text().lower() in ("rose", "arose")
    assert "genesis.txt" in hits.first.inner_text()
    assert page.locator("#neighbours-static li").count() > 0
    page.get_by_role("radio", name="Other words").click()
    visit.ready()
    assert "rose" not in page.locator("#neighbours-hits b").all_inner_texts()
    page.get_by_role("radio", name="Each word once").click()
    visit.ready()
    words = [word.lower() for word in page.locator("#neighbours-hits b").all_inner_texts()]
    assert len(set(words)) == len(words)
    page.locator("#neighbours-chips .chip", has_text="morning").click()
    visit.ready()
    assert "“morning”" in visit.text("#neighbours-finding")
    hits.first.locator("button").click()  # walk on into the text
    visit.ready()
    assert visit.text("#neighbours-walk").startswith("From the text:")
    page.get_by_role("button", name="Back to your sentence").click()
    visit.ready()
    assert "“morning”" in visit.text("#neighbours-finding")
    assert page.locator("#neighbours-walk").is_hidden()


def test_expectations_of_both_sides(visit: Visit) -> None:
    page = visit.open("#expectations")
    page.get_by_role("button", name="capital").click()
    visit.ready()
    assert "Perplexity" in visit.text("#expectations-finding")
    places = page.locator("#expectations-strip .place")
    assert places.locator(".word").all_inner_texts() == "The capital of France is Paris .".split()
    assert "capital" in visit.text("#expectations-backward")
    for side in ("forward", "backward", "combined"):
        assert page.locator(f"#expectations-{side} li").count() == 8
    places.nth(1).focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert visit.text("#expectations-place") == "In the place of Paris"
    assert visit.text("#expectations-left").startswith("The capital of France is")
    assert "Paris" in visit.text("#expectations-combined")
    textbox(page, "Your sentence").fill("The cat zorbled on the mat.")
    page.wait_for_selector("#expectations-finding:has-text('scored as unknown: zorbled.')")
    textbox(page, "Your sentence").fill("Colorless green ideas sleep furiously.")
    page.wait_for_selector(".place:has-text('furiously')")
    visit.ready()
    assert numbers(visit.text("#expectations-finding")) == []  # a perplexity of over a thousand
    assert "1,7" in visit.text("#expectations-finding")


def test_a_trained_task(visit: Visit) -> None:
    page = visit.open("#tasks")
    textbox(page, "Your text").fill("Carla met Bob in Oslo.")
    page.wait_for_selector("#tasks-result .span:has-text('Carla')")
    visit.ready()
    spans = page.locator("#tasks-result .span").all_inner_texts()
    assert [span.split() for span in spans] == [["Carla", "PER"], ["Bob", "PER"], ["Oslo", "LOC"]]
    assert "F1 on its development data" in visit.text("#tasks-about")
    shares = [float(t) for t in page.locator("#tasks-mixes .score").all_inner_texts()]
    assert sum(shares) == pytest.approx(1, abs=0.02)


# -------------------------------------------------------------------- what six kinds of tasks say


def _shown(task: Task[Any], text: str, prediction: Any, form: str = "text") -> dict[str, Any]:
    (example,) = task.parse([Line("here", 1, text)], form)
    found: dict[str, Any] = json.loads(task.show(example, prediction, as_json=True))
    return found


def _answers() -> dict[str, dict[str, Any]]:
    passage = "The bridge was built by a 𝒎iller in 1821."
    question = json.dumps({"question": "Who built it?", "context": passage})
    start = passage.index("a 𝒎iller")
    return {
        "ner": _shown(Ner(), "Ann Smith left.", ["B-PER", "I-PER", "O", "O"]),
        "sst5": _shown(Sst5(), "A fine film.", Guess("4", {"0": 0.1, "4": 0.9})),
        "snli": _shown(Snli(), "A\tB", Guess("neutral", {"entailment": 0.2, "neutral": 0.8})),
        "squad": _shown(Squad(), question, Answer("a 𝒎iller", start, start + 8, 0.9), "jsonl"),
        "srl": _shown(
            Srl(),
            '{"tokens": ["Ann", "sees", "Bob", "there", "."], "predicates": [1]}',
            [Frame(1, ((0, 1, "ARG0"), (1, 2, "V"), (2, 3, "ARG1"), (3, 4, "ARGM-LOC")))],
            "jsonl",
        ),
        "coref": _shown(
            Coref(),
            "Ann took her brother with her.",
            Resolved([[Mention(0, 1), Mention(2, 3)], [Mention(2, 4), Mention(5, 6)]], False),
        ),
    }


def test_each_kind_of_task_is_drawn(desk: Visit) -> None:
    answers = _answers()
    page = desk.page
    page.route("**/v1/models", lambda route: _with(route, tasks=list(answers)))
    mixes = {"input": {"s": [0.2, 0.5, 0.3], "gamma": 1.1}}
    cards = [
        {"name": k, "task": k, "title": k, "metric": "f1", "mixes": mixes, "scores": {}}
        for k in answers
    ]
    page.route("**/v1/tasks", lambda route: route.fulfill(json={"tasks": cards}))
    for kind, found in answers.items():
        answer = {"task": kind, "results": [[found]], "warnings": []}
        page.route(f"**/v1/tasks/{kind}", partial(_fulfill, answer))
    desk.open("#tasks")
    result = page.locator("#tasks-result")

    def chosen(kind: str) -> str:
        page.get_by_role("radio", name=kind).click()
        desk.ready()
        return " ".join(result.inner_text().split())

    assert "Ann Smith PER left." in chosen("ner")
    assert chosen("sst5") == "A fine film. very bad 10% very good 90%"
    assert result.locator(".right").inner_text().startswith("very good")
    assert chosen("snli") == "it follows 20% neither 80%"
    page.get_by_role("radio", name="squad").click()
    textbox(page, "The passage").fill("The bridge was built by a 𝒎iller in 1821.")
    page.wait_for_selector("mark")
    assert result.locator("mark").inner_text() == "a 𝒎iller"
    assert chosen("srl") == (
        "Ann ARG0 who does it sees verb Bob ARG1 what it is done to there ARGM-LOC where ."
    )
    assert chosen("coref").endswith("Ann — her her brother — her")
    inner = result.locator(".span .span")
    assert inner.count() == 1  # a mention in a mention
    assert page.locator("#tasks-mixes .mix").count() == len(answers)


def _fulfill(answer: dict[str, Any], route: Any) -> None:
    route.fulfill(json=answer)


def _with(route: Any, **changes: Any) -> None:
    route.fulfill(json={**route.fetch().json(), **changes})


# ----------------------------------------------------------------------------- keys, eyes, colours


def test_keys_alone(desk: Visit) -> None:
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
    assert sum(name.startswith("chip ") for name in reached) == 1  # one stop for all chips
    chosen = page.locator('.chip[aria-checked="true"]')
    chosen.focus()
    page.keyboard.press("ArrowRight")
    assert chosen.locator(".word").inner_text() == "the"
    assert page.evaluate("document.activeElement.getAttribute('aria-checked')") == "true"
    page.keyboard.press("End")
    assert chosen.locator(".word").inner_text() == "?"


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_fits_and_stands_still(browser: Any, url: str, panel: str) -> None:
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


def test_light_and_dark(browser: Any, url: str) -> None:
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


# -------------------------------------------------------------------------------------- bad weather


def test_help_where_something_is_missing(desk: Visit) -> None:
    page = desk.open("#sentences")
    field = textbox(page, "Your sentences")
    notice = page.locator("#sentences-notice")
    field.fill("")
    page.wait_for_selector("#sentences-notice:has-text('Type a sentence')")
    field.fill("word " * 300)
    page.wait_for_selector("#sentences-notice:has-text('256')")  # the limit is said
    field.fill(READ)
    notice.wait_for(state="hidden")
    page.route("**/v1/similarity", lambda route: route.abort())
    field.fill("Is anybody there?")
    page.wait_for_selector("#sentences-notice:has-text('does not answer')")
    page.unroute("**/v1/similarity")
    field.fill("Is anybody there now?")
    notice.wait_for(state="hidden")
    assert all("Failed to load" in message for message in desk.wrong)
    assert len(desk.wrong) == 2
    desk.wrong.clear()


def test_full_service_is_asked_again(desk: Visit) -> None:
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


def test_typing_asks_once_and_the_last_wins(desk: Visit) -> None:
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
    page.go_back()  # all that was typed is one step
    desk.ready()
    assert field.input_value() == READ


def test_a_long_text_does_not_freeze_the_page(desk: Visit) -> None:
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
    page.locator(".place").nth(190).click()  # more places than are asked for at once
    page.wait_for_selector("#expectations-combined li")
    desk.ready()
    assert page.locator("#expectations-combined li").count() == 8
    assert page.evaluate("window.stood") < 3000  # milliseconds, on a machine that is busy
    assert ["Failed to load" in message for message in desk.wrong] == [True]
    desk.wrong.clear()


def test_a_text_too_long_for_a_link_stays(desk: Visit) -> None:
    page = desk.open("#expectations")
    long = " ".join("abcdefghij" * 8 + str(i) for i in range(160))
    textbox(page, "Your sentence").fill(long)
    page.wait_for_selector(".place:nth-child(160)", state="attached")
    assert len(page.url) < 200
    page.get_by_role("button", name="Copy link").click()
    assert "too long for a link" in desk.text("#said")
    page.reload()
    desk.ready()
    assert textbox(page, "Your sentence").input_value() == long


def test_markup_is_text(desk: Visit) -> None:
    dialogs: list[Any] = []
    desk.page.on("dialog", lambda dialog: dialogs.append(dialog))
    page = desk.open("#sentences")
    evil = "<img src=x onerror=alert(1)> <script>alert(2)</script>\n\"'><b>bold</b>"
    textbox(page, "Your sentences").fill(evil)
    page.wait_for_selector(".chip:has-text('onerror')")
    desk.ready()
    for panel in ("senses", "expectations", "neighbours", "tasks"):
        query = urlencode({"x": evil.replace("\n", " "), "w": "alert"})
        page.goto(f"{desk.url}/#{panel}?{query}")
        desk.ready()
    assert page.locator("main :is(img, script)").count() == 0
    assert dialogs == []


# --------------------------------------------------------------------------------- other services


@pytest.fixture(scope="module")
def bare() -> Iterator[Server]:
    """A service with a token, and nothing but a model without a language model."""
    settings = Settings(port=0, models={"tiny": str(TINY_MODEL)}, device="cpu", token="sesame")
    with running(settings) as found:
        yield found


def test_a_token_is_asked_for_and_what_is_missing_is_said(browser: Any, bare: Server) -> None:
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
        ("neighbours", "elmo index TEXT"),
        ("expectations", "no vocabulary"),
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


# -------------------------------------------------------------------------------------- pictures

PICTURES = {
    "start": ("desk", "light", "#start?w=bank"),
    "sentences": ("desk", "light", "#sentences"),
    "senses": ("desk", "light", "#senses?p=7"),
    "neighbours": ("desk", "dark", "#neighbours"),
    "expectations": ("desk", "light", "#expectations?w=capital&x=The+capital+of+France+is+Paris."),
    "phone": ("phone", "dark", "#senses?v=1&p=7"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_of_the_docs(browser: Any, url: str, name: str, tmp_path: Path) -> None:
    size, scheme, place = PICTURES[name]
    found = Visit(browser, url, size, color_scheme=scheme)
    if size == "phone":
        found.page.set_viewport_size({"width": 390, "height": 1220})
    page = found.open(place)
    path = Path(os.environ.get("ELMOKIT_SCREENSHOTS", tmp_path)) / f"explorer-{name}.png"
    page.screenshot(path=path, full_page=size == "desk")
    with Image.open(path) as picture:
        assert picture.width == tools.SIZES[size][0]
        picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=192).save(path, optimize=True)
    assert 5_000 < path.stat().st_size < 150_000
    found.close()
