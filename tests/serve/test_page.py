"""The explorer page in a browser, with the window sizes of a desktop and of a phone.

`ELMOKIT_SCREENSHOTS=docs/img` writes the screenshots of docs/how-to/explorer.md. With
`ELMOKIT_TASKS=runs/`, they show the task models in that directory, trained on real data.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from PIL import Image

from tests.serve import browser as tools
from tests.serve.browser import Visit, numbers, textbox

pytestmark = pytest.mark.slow

READ = "I read the book yesterday.\nCan you read the letter now?"


# --------------------------------------------------------------------------------------- the panels


def test_start_panel_shows_one_word_with_several_vectors(visit: Visit) -> None:
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
    page.locator(".panel-links").get_by_role("link", name="Senses").click()
    visit.ready()
    assert page.url.endswith("#senses")
    page.go_back()
    visit.ready()
    assert page.get_by_role("radio", name="left").get_attribute("aria-checked") == "true"
    page.go_back()
    assert page.get_by_role("radio", name="play").get_attribute("aria-checked") == "true"


def test_sentence_similarity_with_manual_input(visit: Visit) -> None:
    page = visit.open("#sentences")
    textbox(page, "Your sentences").fill("The bank lent us money.\nWe sat on the bank.")
    page.wait_for_selector(".chip:has-text('lent')")
    visit.ready()
    banks = page.locator(".chip", has_text="bank")
    banks.nth(1).click()
    assert banks.nth(1).get_attribute("aria-checked") == "true"
    top = numbers(banks.nth(0).inner_text())[0]
    assert top < 0.95
    # Layer 0 has no context: both tokens have the same vector there.
    page.locator("#sentences-layers-range").press("Home")
    assert "cosine 1.00" in str(banks.nth(0).get_attribute("aria-label"))
    assert "characters only" in visit.text("#sentences-layers")
    path = numbers(visit.text("#sentences-finding"))[:3]
    assert path[0] == 1
    assert path[2] == pytest.approx(top, abs=0.006)
    # The table has a column for each layer; the heat map has a cell for each pair.
    head = page.locator("#sentences-table thead").inner_text().split()[1:]
    assert [head[i : i + 2] for i in (0, 2, 4)] == [["layer", str(i)] for i in range(3)]
    assert page.locator("#sentences-table tbody tr").count() == 8
    page.get_by_role("button", name="Show all").click()
    assert page.locator("#sentences-table tbody tr").count() == 11
    assert page.locator("#sentences-heat tbody td").count() == 6 * 6
    page.get_by_label("Sentence in the columns").select_option("0")
    diagonal = page.locator("#sentences-heat tbody tr").nth(0).locator("td").nth(0)
    assert numbers(diagonal.inner_text()) == [1.0]


def test_custom_mix_is_stored_in_the_link(visit: Visit) -> None:
    page = visit.open("#sentences")
    page.get_by_role("radio", name="Custom mix").click()
    chip = page.locator(".chip", has_text="yesterday")
    average = numbers(chip.inner_text())
    for layer in (0, 1):
        page.locator(f"#sentences-layers-s{layer}").press("Home")
    assert "1.00" in page.locator("#sentences-layers .dial").nth(2).inner_text()
    mixed = numbers(chip.inner_text())
    assert mixed != average
    column = page.locator("#sentences-table tbody tr").nth(0).locator("td")
    assert column.last.inner_text() == column.nth(2).inner_text()  # only layer 2 has weight
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


def test_browser_history(desk: Visit) -> None:
    page = desk.open("#sentences")
    page.get_by_role("button", name="play", exact=True).click()
    desk.ready()
    page.locator(".chip", has_text="garden").click()
    page.locator("#sentences-layers-range").press("ArrowLeft")
    page.locator("#sentences-layers-range").press("ArrowLeft")
    chosen = page.locator('.chip[aria-checked="true"] .word')
    slider = page.locator("#sentences-layers-range")
    assert (chosen.inner_text(), slider.input_value()) == ("garden", "0")
    page.go_back()  # one history entry for the slider, however long it is dragged
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


def test_senses_separate_in_higher_layers(visit: Visit) -> None:
    page = visit.open("#senses")
    page.get_by_role("button", name="play", exact=True).click()
    visit.ready()
    points = page.locator("#senses-plane .point")
    assert points.count() == 16
    slider = page.locator("#senses-layers-range")
    slider.press("Home")
    assert _places(page) == 1
    assert "16 identical uses" in page.locator("#senses-plane").text_content()
    assert page.locator("#senses-static circle").count() == 1
    still = page.locator("#senses-static").inner_html()
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    assert _places(page) == 16
    assert page.locator("#senses-static").inner_html() == still
    assert "theater (6)" in visit.text("#senses-legend")
    page.get_by_role("radio", name="By cluster").click()
    assert "cluster 2" in visit.text("#senses-legend")
    # Sentences can be read with the pointer, with the keyboard, and in the list.
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


def test_senses_of_custom_sentences(desk: Visit) -> None:
    page = desk.open("#senses")
    page.get_by_text("Edit the sentences").click()
    textbox(page, "One sentence per line").fill(
        "I read it. | now\nI read it then. | then\nNo more."
    )
    textbox(page, "Word").fill("read")
    page.wait_for_selector("#senses-finding:has-text('The word was not found in line 3')")
    assert page.locator("#senses-plane .point").count() == 2
    textbox(page, "Word").fill("")
    page.wait_for_selector("#senses-notice:has-text('Enter the word')")
    desk.wrong.clear()  # the word is incomplete and occurs in no sentence


def _places(page: Any) -> int:
    found = page.locator("#senses-plane .point").evaluate_all(
        "points => points.map((p) => p.style.transform)"
    )
    return len(set(found))


def test_neighbors_in_a_text(visit: Visit) -> None:
    page = visit.open("#neighbors")
    hits = page.locator("#neighbors-hits li")
    assert hits.count() == 10
    scores = [numbers(text)[0] for text in hits.locator(".score").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    assert hits.locator("b").first.inner_text().lower() in ("rose", "arose")
    assert "genesis.txt" in hits.first.inner_text()
    assert page.locator("#neighbors-static li").count() > 0
    page.get_by_role("radio", name="Other words").click()
    visit.ready()
    assert "rose" not in page.locator("#neighbors-hits b").all_inner_texts()
    page.get_by_role("radio", name="Distinct words").click()
    visit.ready()
    words = [word.lower() for word in page.locator("#neighbors-hits b").all_inner_texts()]
    assert len(set(words)) == len(words)
    page.locator("#neighbors-chips .chip", has_text="morning").click()
    visit.ready()
    assert "“morning”" in visit.text("#neighbors-finding")
    hits.first.locator("button").click()  # search from a neighbor
    visit.ready()
    assert visit.text("#neighbors-query").startswith("Query from the text:")
    page.get_by_role("button", name="Back to your sentence").click()
    visit.ready()
    assert "“morning”" in visit.text("#neighbors-finding")
    assert page.locator("#neighbors-query").is_hidden()


def test_substitutes_and_surprisal_of_both_directions(visit: Visit) -> None:
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
    assert visit.text("#expectations-place") == "Predictions for Paris"
    assert visit.text("#expectations-left").startswith("The capital of France is")
    assert "Paris" in visit.text("#expectations-combined")
    textbox(page, "Your sentence").fill("The cat zorbled on the mat.")
    page.wait_for_selector("#expectations-finding:has-text('scored as unknown: zorbled.')")
    textbox(page, "Your sentence").fill("Colorless green ideas sleep furiously.")
    page.wait_for_selector(".place:has-text('furiously')")
    visit.ready()
    assert numbers(visit.text("#expectations-finding")) == []  # a perplexity of over a thousand
    assert "1,4" in visit.text("#expectations-finding")


# ------------------------------------------------------------------------------------- custom mixes


def only(page: Any, panel: str, layer: int) -> None:
    """Select a custom mix in which only one layer has weight."""
    page.get_by_role("radio", name="Custom mix").click()
    for j in range(3):
        page.locator(f"#{panel}-layers-s{j}").press("End" if j == layer else "Home")


def test_senses_with_a_custom_mix(visit: Visit) -> None:
    page = visit.open("#senses")
    top, finding = _transforms(page), visit.text("#senses-finding")
    only(page, "senses", 2)
    page.wait_for_selector("#senses-finding:has-text('In the custom mix')")
    visit.ready()
    assert _transforms(page) == pytest.approx(top, abs=0.2)  # only layer 2 has weight
    assert numbers(visit.text("#senses-finding")) == numbers(finding)
    page.locator("#senses-layers-s0").press("End")
    page.wait_for_selector("#senses-layers .dial:has-text('0.50')")
    visit.ready()
    mixed = _transforms(page)
    assert mixed != pytest.approx(top, abs=2)
    assert page.locator("#senses-layers-gamma").count() == 0
    assert "γ" in visit.text("#senses-layers .mix-note")
    page.wait_for_url(re.compile(r"s=1%2C0%2C1"))
    visit.open(page.url.removeprefix(visit.url + "/"))  # the link shows the same
    assert _transforms(page) == pytest.approx(mixed, abs=0.2)
    page.locator("#senses-layers-s0").press("Home")
    page.locator("#senses-layers-s2").press("Home")
    page.wait_for_selector("#senses-notice:has-text('All weights are 0')")


def _transforms(page: Any) -> list[float]:
    found = page.locator("#senses-plane .point").evaluate_all(
        "points => points.map((p) => p.style.transform)"
    )
    return [value for text in found for value in numbers(text)]


def test_neighbors_with_a_custom_mix(visit: Visit) -> None:
    page = visit.open("#neighbors")
    hits = page.locator("#neighbors-hits")
    top = hits.inner_text()
    only(page, "neighbors", 2)
    page.wait_for_selector("#neighbors-finding:has-text('in the custom mix')")
    visit.ready()
    assert hits.inner_text() == top
    only(page, "neighbors", 0)
    page.wait_for_selector("#neighbors-hits li:nth-child(3):has-text('1.00')")
    visit.ready()
    assert numbers(hits.locator(".score").first.inner_text()) == [1.0]  # only the characters
    page.wait_for_url(re.compile(r"s=1%2C0%2C0"))
    seen = hits.inner_text()
    hits.locator("button").nth(1).click()  # the search from a neighbor uses the same mix
    visit.ready()
    assert "in the custom mix" in visit.text("#neighbors-finding")
    page.go_back()
    visit.ready()
    assert hits.inner_text() == seen


# -------------------------------------------------------------------------------------- screenshots

REAL_TASKS = "ELMOKIT_TASKS" in os.environ
ROLES = "#tasks?" + urlencode(
    {
        "k": "srl" if REAL_TASKS else "roles",
        "x": "The captain said that the boat, which carried coal, would leave in the morning."
        if REAL_TASKS
        else "the Ann saw the Bob today and the Dave met the Carla",
    }
)
PICTURES = {
    "start": ("desk", "light", "#start?w=bank"),
    "sentences": ("desk", "light", "#sentences"),
    "senses": ("desk", "light", "#senses?p=7"),
    "neighbors": ("desk", "dark", "#neighbors"),
    "expectations": ("desk", "light", "#expectations?w=capital&x=The+capital+of+France+is+Paris."),
    "tasks": ("desk", "light", ROLES),
    "phone": ("phone", "dark", "#senses?v=1&p=7"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_screenshots_of_the_docs(browser: Any, url: str, name: str, tmp_path: Path) -> None:
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
