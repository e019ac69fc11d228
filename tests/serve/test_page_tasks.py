"""Task panel in a browser: six trained tasks, and how each kind of prediction is shown."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest

from elmokit.tasks.classify import LabelPrediction
from elmokit.tasks.coref import Coref, CorefPrediction
from elmokit.tasks.documents import Mention
from elmokit.tasks.ner import Ner
from elmokit.tasks.propbank import Frame
from elmokit.tasks.snli import Snli
from elmokit.tasks.squad import Answer, Squad
from elmokit.tasks.srl import Srl
from elmokit.tasks.sst5 import Sst5
from elmokit.tasks.task import Task
from elmokit.text.lines import Line
from tests.serve.browser import Visit, numbers, textbox

pytestmark = pytest.mark.slow

# Input, and the expected output where the task model fits the tiny language perfectly.
TRAINED = {
    "names": (
        ["Carla met Bob in Oslo."],
        "Carla PER person met Bob PER person in Oslo LOC location .",
    ),
    "opinions": (["This film is very good."], None),
    "follows": (["a nurse runs here", "the nurse runs"], None),
    "answers": (
        ["Who keeps the lamp?", "Eve keeps the lamp in Rome. Ann keeps the ring in Oslo."],
        None,
    ),
    "roles": (["the Ann saw the Bob today and the Dave met the Carla"], None),
    "chains": (["Ann met Bob. Bob saw Ann. Ann saw Bob."], "1 Ann – Ann – Ann 2 Bob – Bob – Bob"),
}
OPINIONS = ("very negative", "negative", "neutral", "positive", "very positive")


@pytest.mark.parametrize("name", TRAINED)
def test_predictions_of_a_trained_task_are_shown(visit: Visit, name: str) -> None:
    texts, drawn = TRAINED[name]
    page = visit.open("#tasks")
    page.get_by_role("radio", name=re.compile(f"^{name}")).click()
    visit.ready()
    assert page.locator("#tasks-result").inner_text().strip()  # from an example
    for field, text in zip(("text", "other"), texts, strict=False):
        page.locator(f"#tasks-{field}").fill(text)
        page.wait_for_url(re.compile(re.escape(urlencode({"": text})[1:])))
    visit.ready()
    if drawn is None:
        AS_ANSWERED[name](page, _answer(visit, name, texts))
    else:
        assert drawn in visit.text("#tasks-result")
    assert "on the development set" in visit.text("#tasks-about")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    seen = visit.text("#panel-tasks")
    visit.open(page.url.removeprefix(visit.url + "/"))  # the link shows the same
    assert visit.text("#panel-tasks") == seen


def _answer(visit: Visit, name: str, texts: list[str]) -> dict[str, Any]:
    """Request the prediction directly from the service."""
    keys = {"follows": ("sentence1", "sentence2"), "answers": ("question", "context")}.get(name)
    example: Any = dict(zip(keys, texts, strict=True)) if keys else texts[0]
    answer = visit.page.request.post(f"{visit.url}/v1/tasks/{name}", data={"examples": [example]})
    found: dict[str, Any] = answer.json()["results"][0][0]
    return found


def _opinion(page: Any, answer: dict[str, Any]) -> None:
    shown = page.locator("#tasks-result .bars li")
    assert shown.locator(".word").all_inner_texts() == list(OPINIONS)
    percents = [float(text.strip("<%")) for text in shown.locator(".score").all_inner_texts()]
    expected = [100 * answer["probabilities"][str(i)] for i in range(5)]
    assert percents == pytest.approx(expected, abs=0.51)
    said = OPINIONS[int(answer["label"])]
    assert page.locator("#tasks-result .match .word").inner_text() == said
    assert page.locator("#tasks-result .verdict").inner_text().startswith(said.capitalize())


FOLLOWS = {
    "entailment": ("entailment", "follows from the premise"),
    "neutral": ("neutral", "may or may not be true, given the premise"),
    "contradiction": ("contradiction", "contradicts the premise"),
}


def _follows(page: Any, answer: dict[str, Any]) -> None:
    short, long = FOLLOWS[answer["label"]]
    verdict = page.locator("#tasks-result .verdict").inner_text()
    assert verdict == f"“the nurse runs” {long}."
    assert page.locator("#tasks-result .match .word").inner_text() == short
    words = page.locator("#tasks-result .bars .word").all_inner_texts()
    assert words == ["entailment", "neutral", "contradiction"]


def _passage(page: Any, answer: dict[str, Any]) -> None:
    assert page.locator("#tasks-result mark").inner_text() == answer["answer"]
    assert page.locator("#tasks-result .verdict b").inner_text() == answer["answer"]
    assert page.locator("#tasks-result .passage").inner_text() == TRAINED["answers"][0][1]


def _frames(page: Any, answer: dict[str, Any]) -> None:
    frames = page.locator("#tasks-result .frame")
    assert frames.count() == len(answer["frames"]) > 0
    for drawn, frame in zip(frames.all(), answer["frames"], strict=True):
        assert drawn.locator(".predicate .inside").inner_text() == frame["word"]
        labels = [label.split()[0] for label in drawn.locator(".label").all_inner_texts()]
        expected = [role["label"] for role in frame["roles"] if role["label"] != "V"]
        assert sorted(labels) == sorted([*expected, "verb"])


AS_ANSWERED = {
    "opinions": _opinion,
    "follows": _follows,
    "answers": _passage,
    "roles": _frames,
}


def test_layer_weights_of_tasks_are_shown(visit: Visit) -> None:
    page = visit.open("#tasks?k=follows")
    rows = page.locator("#tasks-mixes tbody tr")
    assert rows.count() == 9  # three tasks use ELMo at the input and at the output
    for row in rows.all():
        shares = [float(text) for text in row.locator(".weight").all_inner_texts()]
        assert sum(shares) == pytest.approx(1, abs=0.02)
        kinds = [str(cell.get_attribute("class")) for cell in row.locator(".weight").all()]
        assert [("low" in k, "high" in k) for k in kinds] == [
            (s < 0.33, s > 0.67) if abs(s - 1 / 3) > 0.006 else ("low" in k, "high" in k)
            for s, k in zip(shares, kinds, strict=True)
        ]
    chosen = page.locator("#tasks-mixes .chosen")
    assert [text.split()[0] for text in chosen.all_inner_texts()] == ["follows", "follows"]
    assert visit.text("#tasks-mixes-summary").startswith("“follows” uses")
    shares = chosen.first.locator(".weight").all_inner_texts()
    chosen.first.get_by_role("button").click()  # the same mix can be used for sentences
    visit.ready()
    dials = page.locator("#sentences-layers .dial").all_inner_texts()
    found = [numbers(text)[-1] for text in dials[:3]]
    assert found == pytest.approx([float(s) for s in shares], abs=0.011)
    page.go_back()
    visit.ready()
    assert page.locator("#panel-tasks").is_visible()


def test_coreference_clusters_can_be_selected_with_the_keyboard(desk: Visit) -> None:
    page = desk.open("#tasks?" + urlencode({"k": "chains", "x": TRAINED["chains"][0][0]}))
    chains = page.locator(".chain button")
    assert chains.count() == 2
    chains.nth(1).focus()
    page.keyboard.press("Enter")
    assert chains.nth(1).get_attribute("aria-pressed") == "true"
    bright = page.locator("#tasks-result .span:not(.dim) .inside").all_inner_texts()
    assert bright == ["Bob", "Bob", "Bob"]
    page.keyboard.press("Enter")
    assert page.locator("#tasks-result .dim").count() == 0
    page.locator("#tasks-names [aria-checked=true]").focus()
    page.keyboard.press("Home")  # the arrow keys move between the tasks
    desk.ready()
    first = page.locator("#tasks-names .option").first
    assert first.get_attribute("aria-checked") == "true"
    assert page.evaluate("document.activeElement.textContent") == first.text_content()
    assert "refer to the same" not in desk.text("#tasks-about")


def test_notices_of_the_task_panel(desk: Visit) -> None:
    page = desk.open("#tasks?k=answers")
    page.locator("#tasks-text").fill(" ")
    page.wait_for_selector("#tasks-notice:has-text('Enter a question')")
    page.locator("#tasks-text").fill("Who?")
    page.locator("#tasks-other").fill("")
    page.wait_for_selector("#tasks-notice:has-text('Enter a passage')")
    page.locator("#tasks-other").fill("word " * 1500)
    page.wait_for_selector("#tasks-notice:has-text('truncated to 1,000 tokens')")
    assert page.locator("#tasks-result mark").is_visible()
    page.get_by_role("button", name="who built it?").click()
    page.locator("#tasks-notice").wait_for(state="hidden")
    desk.ready()
    page.get_by_role("radio", name=re.compile("^opinions")).click()
    page.locator("#tasks-text").fill("")
    page.wait_for_selector("#tasks-notice:has-text('Enter a text, or select an example.')")
    page.locator("#tasks-text").fill("good " * 600)
    page.wait_for_selector("#tasks-notice:has-text('512')")  # the text is truncated, with a notice
    assert page.locator("#tasks-result .bars").is_visible()
    page.get_by_role("radio", name=re.compile("^names")).click()
    page.locator("#tasks-text").fill("word " * 5000)
    page.wait_for_selector("#tasks-notice:has-text('the limit max_tokens is 4,096')")
    assert all("422" in message for message in desk.wrong)
    assert len(desk.wrong) == 1
    desk.wrong.clear()


# ----------------------------------------------------------------- output of the six kinds of tasks


def _shown(task: Task[Any], text: str, prediction: Any, form: str = "text") -> dict[str, Any]:
    (example,) = task.parse([Line("here", 1, text)], form)
    found: dict[str, Any] = json.loads(task.format_prediction(example, prediction, as_json=True))
    return found


def _answers() -> dict[str, dict[str, Any]]:
    passage = "The bridge was built by a 𝒎iller in 1821."
    question = json.dumps({"question": "Who built it?", "context": passage})
    start = passage.index("a 𝒎iller")
    return {
        "ner": _shown(Ner(), "Ann Smith left.", ["B-PER", "I-PER", "O", "O"]),
        "sst5": _shown(Sst5(), "A fine film.", LabelPrediction("4", {"0": 0.1, "4": 0.9})),
        "snli": _shown(
            Snli(), "A\tB", LabelPrediction("neutral", {"entailment": 0.2, "neutral": 0.8})
        ),
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
            CorefPrediction(
                [[Mention(0, 1), Mention(2, 3)], [Mention(2, 4), Mention(5, 6)]], False
            ),
        ),
    }


def test_each_kind_of_task_is_rendered(desk: Visit) -> None:
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

    assert "Ann Smith PER person left." in chosen("ner")
    assert chosen("sst5") == "Very positive: “A fine film.” very negative 10% very positive 90%"
    assert result.locator(".match").inner_text().startswith("very positive")
    assert chosen("snli") == (
        "“B” may or may not be true, given the premise. entailment 20% neutral 80%"
    )
    page.get_by_role("radio", name="squad").click()
    textbox(page, "Passage").fill("The bridge was built by a 𝒎iller in 1821.")
    page.wait_for_selector("mark")
    assert result.locator("mark").inner_text() == "a 𝒎iller"
    assert chosen("srl") == "Ann ARG0 who sees verb Bob ARG1 what there ARGM-LOC where ."
    assert chosen("coref").endswith("click one to highlight it. 1 Ann – her 2 her brother – her")
    inner = result.locator(".span .span")
    assert inner.count() == 1  # a nested mention
    assert page.locator("#tasks-mixes tbody tr").count() == len(answers)


def _fulfill(answer: dict[str, Any], route: Any) -> None:
    route.fulfill(json=answer)


def _with(route: Any, **changes: Any) -> None:
    route.fulfill(json={**route.fetch().json(), **changes})
