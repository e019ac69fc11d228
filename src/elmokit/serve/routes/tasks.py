"""`/v1/tasks`: what is trained, and predictions of it."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from elmokit.errors import ElmoWarning
from elmokit.serve import answers, formats
from elmokit.serve.errors import RequestRejected
from elmokit.serve.requests import Json, TaskRequest
from elmokit.serve.routes.common import Router, service_of
from elmokit.tasks.registry import TASKS
from elmokit.tasks.saved import SavedTask
from elmokit.tasks.task import Task
from elmokit.text.lines import Line

router = Router("tasks")

_JSON_LINES = "jsonl"
# Python keeps one list of warnings for all threads.
_WARNINGS = threading.Lock()


@router.answer("GET", "/v1/tasks", answers.TasksAnswer)
async def tasks(request: Request) -> Response:
    """List the trained tasks, with the layer weights that they learned and their scores."""
    hosted = service_of(request).hosted
    cards = [card(name, saved) for name, saved in hosted.tasks.items()]
    return formats.json_response({"tasks": cards})


@router.answer("POST", "/v1/tasks/{name}", answers.TaskAnswer, 404)
async def predict(name: str, body: Json[TaskRequest], request: Request) -> Response:
    """Predict entities, labels, answers: what the task is trained for."""
    service = service_of(request)
    saved = service.hosted.task(name)
    service.limits.check_sentences(len(body.examples))
    groups, notes = await service.run_in_thread(_parse, saved.task, body.examples)
    examples = [example for group in groups for example in group]
    costs = [max(1, sum(map(len, example.texts))) for example in examples]
    service.limits.check_tokens([words for e in examples for words in e.texts])
    found = iter(await service.compute(service.hosted.predictions(name), examples, costs))
    results = [
        [json.loads(saved.task.show(example, next(found), as_json=True)) for example in group]
        for group in groups
    ]
    return formats.json_response({"task": name, "results": results, "warnings": notes})


def card(name: str, saved: SavedTask[Any]) -> dict[str, Any]:
    """Describe a trained task."""
    task, results = saved.task, saved.results
    has_elmo = saved.elmo is not None
    return {
        "name": name,
        "task": task.name,
        "title": TASKS.get(task.name, task.name),
        "metric": task.metric,
        "inputs": list(task.inputs),
        "elmo": str(saved.elmo.metadata.get("name", "")) if saved.elmo is not None else None,
        "place": saved.config.elmo.place if has_elmo else None,
        "mixes": results.get("mixes", {}),
        "scores": {part: results[part] for part in ("dev", "test") if results.get(part)},
        "labels": saved.facts,
    }


def _parse(
    task: Task[Any], given: Sequence[str | dict[str, Any]]
) -> tuple[list[list[Any]], list[str]]:
    """Read examples as the task reads its files; one may hold several sentences, or none."""
    groups: list[list[Any]] = []
    with _WARNINGS, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ElmoWarning)
        for i, example in enumerate(given):
            groups.append(list(task.parse(_lines(example, i), _form(task, example, i))))
    notes = [str(one.message) for one in caught if issubclass(one.category, ElmoWarning)]
    return groups, notes


def _form(task: Task[Any], example: str | dict[str, Any], i: int) -> str:
    if isinstance(example, str) and "text" in task.inputs:
        return "text"
    if _JSON_LINES in task.inputs and isinstance(example, dict):
        return _JSON_LINES
    found = "a string" if isinstance(example, str) else "an object"
    raise RequestRejected(
        422,
        f"Example {i} is {found}; the task {task.name} accepts: {', '.join(task.inputs)}.",
        param="examples",
    )


def _lines(example: str | dict[str, Any], i: int) -> list[Line]:
    """Make lines of an example, as of a file; errors of the task name it by its number."""
    text = example if isinstance(example, str) else json.dumps(example, ensure_ascii=False)
    return [Line(f"example {i}", n, line) for n, line in enumerate(text.split("\n"), start=1)]
