"""Predictions of the language models (`/v1/score`, `/v1/substitutes`) and of task models."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.scoring import SentenceScore
from elmokit.embed.substitutes import Substitutes
from elmokit.errors import ElmoWarning
from elmokit.serve import answers, formats
from elmokit.serve.errors import RequestRejected, check_limit
from elmokit.serve.limits import PLACES
from elmokit.serve.requests import ScoreRequest, SubstitutesRequest, TaskRequest
from elmokit.serve.routes.common import OrjsonRoute, service_of
from elmokit.serve.texts import texts_of
from elmokit.tasks.registry import TASKS
from elmokit.tasks.saved import SavedTask
from elmokit.tasks.task import Task
from elmokit.text.lines import Line
from elmokit.text.marked import Marked

router = APIRouter(tags=["predictions"], route_class=OrjsonRoute)

# `catch_warnings` affects all threads.
_WARNINGS = threading.Lock()


# -------------------------------------------------------------------------------- language models


@router.post("/v1/score", response_model=answers.ScoreAnswer)
async def score(body: ScoreRequest, request: Request) -> Response:
    """Return natural log p of each token, forward and backward, and the perplexity."""
    service = service_of(request)
    name, _ = service.hosted.model(body.model)
    service.hosted.check(name, body.state, language_model=True)
    texts = await texts_of(service, name, body.sentences)
    costs = [n + 1 for n in texts.lengths]
    work = service.hosted.scores(name, body.state)
    scores: list[SentenceScore] = await service.batcher.submit(work, texts.read, costs)
    sentences = zip(scores, texts.sentences(), strict=True)
    rows = [{**score.to_dict(), **sentence} for score, sentence in sentences]
    return formats.json_response({**texts.answer(name, body.state), "sentences": rows})


@router.post("/v1/substitutes", response_model=answers.SubstitutesAnswer)
async def substitutes(body: SubstitutesRequest, request: Request) -> Response:
    """Return the most likely words at positions, given the left context, the right, and both."""
    service = service_of(request)
    name, _ = service.hosted.model(body.model)
    service.hosted.check(name, body.state, language_model=True)
    sentence, positions = body.sentence, body.positions
    if isinstance(sentence, str) and positions is None and "[" in sentence:
        marked = Marked.read(sentence)
        sentence, positions = list(marked.tokens), [marked.position]
    texts = await texts_of(service, name, [sentence])
    tokens = texts.tokens[0]
    positions = list(range(len(tokens))) if positions is None else positions
    _check_places(positions, len(tokens))
    item = (texts.read[0], positions, body.k)
    # Each position costs a full softmax, like each token of a score.
    work = service.hosted.substitutes(name, body.state)
    [predicted] = await service.batcher.submit(work, [item], [len(tokens) + 4 * len(positions)])
    places = [_place(substitutes, tokens) for substitutes in predicted]
    answer = texts.answer(name, body.state) | texts.sentences()[0]
    return formats.json_response({**answer, "places": places})


def _check_places(positions: list[int], n_tokens: int) -> None:
    check_limit("places", PLACES, len(positions), "positions")
    if not positions or max(positions) >= n_tokens:
        got = f"position {max(positions)}" if positions else "no position"
        raise RequestRejected(
            422,
            f"Found {got}; the sentence has {n_tokens} tokens, counted from 0.",
            param="positions" if n_tokens else "sentence",
        )


def _place(substitutes: Substitutes, tokens: list[str]) -> dict[str, object]:
    position = substitutes.position
    lists = {key: getattr(substitutes, key) for key in ("forward", "backward", "combined")}
    return {"position": position, "word": tokens[position], **lists}


# ------------------------------------------------------------------------------------------ tasks


@router.get("/v1/tasks", response_model=answers.TasksAnswer)
async def tasks(request: Request) -> Response:
    """List the trained task models, with their learned layer weights and scores."""
    hosted = service_of(request).hosted
    cards = [card(name, saved) for name, saved in hosted.tasks.items()]
    return formats.json_response({"tasks": cards})


@router.post("/v1/tasks/{name}", response_model=answers.TaskAnswer)
async def predict(name: str, body: TaskRequest, request: Request) -> Response:
    """Return the predictions of a task model: entities, labels, answers."""
    service = service_of(request)
    saved = service.hosted.task(name)
    check_limit("max_sentences", service.limits.sentences, len(body.examples), "examples")
    groups, notes = await service.run_in_thread(_parse, saved.task, body.examples)
    examples = [example for group in groups for example in group]
    lengths = [sum(map(len, example.texts)) for example in examples]
    check_limit("max_tokens", service.limits.tokens, sum(lengths), "tokens")
    work = service.hosted.predictions(name)
    costs = [max(1, n) for n in lengths]
    predictions = iter(await service.batcher.submit(work, examples, costs))
    results = [
        [json.loads(saved.task.show(example, next(predictions), as_json=True)) for example in group]
        for group in groups
    ]
    return formats.json_response({"task": name, "results": results, "warnings": notes})


def card(name: str, saved: SavedTask[Any]) -> dict[str, Any]:
    """Describe a trained task model."""
    task, results, elmo = saved.task, saved.results, saved.elmo
    return {
        "name": name,
        "task": task.name,
        "title": TASKS.get(task.name, task.name),
        "metric": task.metric,
        "inputs": list(task.inputs),
        "elmo": None if elmo is None else str(elmo.metadata.get("name", "")),
        "place": None if elmo is None else saved.config.elmo.place,
        "mixes": results.get("mixes", {}),
        "scores": {part: results[part] for part in ("dev", "test") if results.get(part)},
        "labels": saved.facts,
    }


def _parse(
    task: Task[Any], inputs: Sequence[str | dict[str, Any]]
) -> tuple[list[list[Any]], list[str]]:
    """Parse examples like lines of a file; one can contain several sentences, or none."""
    groups: list[list[Any]] = []
    with _WARNINGS, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ElmoWarning)
        for i, example in enumerate(inputs):
            groups.append(list(task.parse(_lines(example, i), _form(task, example, i))))
    notes = [str(w.message) for w in caught if issubclass(w.category, ElmoWarning)]
    return groups, notes


def _form(task: Task[Any], example: str | dict[str, Any], i: int) -> str:
    if isinstance(example, str) and "text" in task.inputs:
        return "text"
    if isinstance(example, dict) and "jsonl" in task.inputs:
        return "jsonl"
    kind = "a string" if isinstance(example, str) else "an object"
    raise RequestRejected(
        422,
        f"Example {i} is {kind}; the task {task.name} accepts: {', '.join(task.inputs)}.",
        param="examples",
    )


def _lines(example: str | dict[str, Any], i: int) -> list[Line]:
    """Return an example as lines of a file; errors name it by its number."""
    text = example if isinstance(example, str) else json.dumps(example, ensure_ascii=False)
    return [Line(f"example {i}", n, line) for n, line in enumerate(text.split("\n"), start=1)]
