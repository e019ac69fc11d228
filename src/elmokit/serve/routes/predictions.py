"""Predictions of the language models (`/v1/score`, `/v1/substitutes`) and of task models."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.scoring import SentenceScore
from elmokit.errors import ElmoWarning
from elmokit.progress import plural
from elmokit.serve import responses
from elmokit.serve.errors import RequestRejected, check_limit
from elmokit.serve.requests import FIXED_LIMITS, ScoreRequest, SubstitutesRequest, TaskRequest
from elmokit.serve.routes.common import (
    OrjsonRoute,
    get_service,
    json_response,
    run_queued,
    run_tokenizer,
    tokenize_request,
)
from elmokit.tasks.registry import TASKS
from elmokit.tasks.saved import SavedTask
from elmokit.tasks.task import Task
from elmokit.text.lines import Line
from elmokit.text.marked import MarkedWord

router = APIRouter(tags=["predictions"], route_class=OrjsonRoute)


# -------------------------------------------------------------------------------- language models


@router.post("/v1/score", response_model=responses.ScoreResponse)
async def score(body: ScoreRequest, request: Request) -> Response:
    """Return the log probability of each token, forward and backward, and the perplexity."""
    service = get_service(request)
    texts = await tokenize_request(request, body.model, body.sentences)
    service.resources.check_supported(texts.model, body.state, language_model=True)
    costs = [n + 1 for n in texts.lengths]
    work = service.resources.work("score", texts.model, body.state)
    scores: list[SentenceScore] = await service.batcher.submit(work, texts.truncated, costs)
    sentences = zip(scores, texts.sentences(), strict=True)
    rows = [{**score.to_dict(), **sentence} for score, sentence in sentences]
    return json_response({**texts.response(body.state), "sentences": rows})


@router.post("/v1/substitutes", response_model=responses.SubstitutesResponse)
async def substitutes(body: SubstitutesRequest, request: Request) -> Response:
    """Return the most probable words given the left context, the right context and both."""
    service = get_service(request)
    sentence, positions = body.sentence, body.positions
    if isinstance(sentence, str) and positions is None and "[" in sentence:
        marked = await run_tokenizer(request, partial(MarkedWord.parse, sentence))
        sentence, positions = list(marked.tokens), [marked.position]
    texts = await tokenize_request(request, body.model, [sentence])
    service.resources.check_supported(texts.model, body.state, language_model=True)
    tokens = texts.tokens[0]
    positions = list(range(len(tokens))) if positions is None else positions
    check_limit("positions", FIXED_LIMITS["positions"], len(positions), "positions")
    if max(positions, default=len(tokens)) >= len(tokens):
        problem = f"Invalid position {max(positions)}" if positions else "No positions"
        raise RequestRejected(
            f"{problem}: the sentence has {plural(len(tokens), 'token')}, counted from 0.",
            param="positions" if tokens else "sentence",
        )
    item = (texts.truncated[0], positions, body.k)
    # Each position requires a full softmax.
    work = service.resources.work("substitutes", texts.model, body.state)
    [results] = await service.batcher.submit(work, [item], [len(tokens) + 4 * len(positions)])
    fields = ("position", "forward", "backward", "combined")
    predictions = [
        {"word": tokens[result.position]} | {name: getattr(result, name) for name in fields}
        for result in results
    ]
    response = texts.response(body.state) | texts.sentences()[0]
    return json_response({**response, "positions": predictions})


# ------------------------------------------------------------------------------------------ tasks


@router.get("/v1/tasks", response_model=responses.TasksResponse)
async def tasks(request: Request) -> Response:
    """List the trained task models with their learned layer weights and scores."""
    saved_tasks = get_service(request).resources.tasks
    cards = [_describe(name, saved) for name, saved in saved_tasks.items()]
    return json_response({"tasks": cards})


@router.post("/v1/tasks/{name}", response_model=responses.TaskResponse)
async def predict(name: str, body: TaskRequest, request: Request) -> Response:
    """Return the predictions of a task model, such as entities, labels or answers."""
    service = get_service(request)
    saved = service.resources.task(name)
    check_limit("max_sentences", service.limits.sentences, len(body.examples), "examples")
    size = len(await request.body())
    check_limit("task_bytes", FIXED_LIMITS["task_bytes"], size, "bytes", 413)
    # Always parse on the compute thread, because `catch_warnings` is not thread-safe.
    parse = partial(_parse_examples, saved.task, body.examples)
    groups, messages = await run_queued(request, "parse", parse, size // 1024)
    examples = [example for group in groups for example in group]
    lengths = [sum(map(len, example.texts)) for example in examples]
    check_limit("max_tokens", service.limits.tokens, sum(lengths), "tokens")
    work = service.resources.work("task", name)
    costs = [max(1, n) for n in lengths]
    predictions = iter(await service.batcher.submit(work, examples, costs))
    results = [
        [
            json.loads(saved.task.format_prediction(example, next(predictions), as_json=True))
            for example in group
        ]
        for group in groups
    ]
    return json_response({"task": name, "results": results, "warnings": messages})


def _describe(name: str, saved: SavedTask[Any]) -> dict[str, Any]:
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
        "scores": {split: results[split] for split in ("dev", "test") if results.get(split)},
        "labels": saved.label_info,
    }


def _parse_examples(
    task: Task[Any], inputs: Sequence[str | dict[str, Any]]
) -> tuple[list[list[Any]], list[str]]:
    """Parse inputs like the lines of a file. Return the examples of each input and all warnings."""
    groups: list[list[Any]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ElmoWarning)
        for i, example in enumerate(inputs):
            input_format = "text" if isinstance(example, str) else "jsonl"
            if input_format not in task.inputs:
                expected = ", ".join(task.inputs)
                message = (
                    f"Example {i} is in format '{input_format}', but the task expects: {expected}."
                )
                raise RequestRejected(message, param="examples")
            text = example if isinstance(example, str) else json.dumps(example, ensure_ascii=False)
            lines = [Line(f"example {i}", n, line) for n, line in enumerate(text.split("\n"), 1)]
            groups.append(list(task.parse(lines, input_format)))
    return groups, [str(w.message) for w in caught if issubclass(w.category, ElmoWarning)]
