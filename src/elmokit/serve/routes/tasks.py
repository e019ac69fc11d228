"""`/v1/tasks`: the trained task models and their predictions."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from elmokit.errors import ElmoWarning
from elmokit.serve import answers, formats
from elmokit.serve.errors import RequestRejected
from elmokit.serve.requests import TaskRequest
from elmokit.serve.routes.common import OrjsonRoute, service_of
from elmokit.tasks.registry import TASKS
from elmokit.tasks.saved import SavedTask
from elmokit.tasks.task import Task
from elmokit.text.lines import Line

router = APIRouter(tags=["tasks"], route_class=OrjsonRoute)

_JSON_LINES = "jsonl"
# `catch_warnings` affects all threads.
_WARNINGS = threading.Lock()


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
    service.limits.check_sentences(len(body.examples))
    groups, notes = await service.run_in_thread(_parse, saved.task, body.examples)
    examples = [example for group in groups for example in group]
    lengths = [sum(map(len, example.texts)) for example in examples]
    service.limits.check_tokens(sum(lengths))
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
    if _JSON_LINES in task.inputs and isinstance(example, dict):
        return _JSON_LINES
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
