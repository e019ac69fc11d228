"""`/v1/score` and `/v1/substitutes`: what the two language models expect."""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.scoring import SentenceScore
from elmokit.embed.substitutes import Substitutes
from elmokit.serve import answers, formats
from elmokit.serve.errors import RequestRejected
from elmokit.serve.limits import PLACES
from elmokit.serve.requests import Json, ScoreRequest, SubstitutesRequest
from elmokit.serve.routes.common import Router, service_of, usage
from elmokit.serve.texts import texts_of
from elmokit.text.marked import Marked

router = Router("language models")


@router.answer(
    "POST",
    "/v1/score",
    answers.ScoreAnswer,
    404,
)
async def score(body: Json[ScoreRequest], request: Request) -> Response:
    """Return natural log p of each token, forward and backward, and the perplexity."""
    service = service_of(request)
    name, _ = service.hosted.model(body.model)
    service.hosted.check(name, body.state, language_model=True)
    texts = await texts_of(service, name, body.sentences)
    costs = [n + 1 for n in texts.lengths]
    found: list[SentenceScore] = await service.compute(
        service.hosted.scores(name, body.state), texts.read, costs
    )
    rows = [
        {**one.to_dict(), "tokens": tokens, "offsets": offsets}
        for one, tokens, offsets in zip(found, texts.tokens, texts.offsets, strict=True)
    ]
    values = {
        "model": name,
        "state": body.state,
        "sentences": rows,
        "usage": usage(texts),
        "warnings": texts.warnings,
    }
    return formats.json_response(values)


@router.answer(
    "POST",
    "/v1/substitutes",
    answers.SubstitutesAnswer,
    404,
)
async def substitutes(body: Json[SubstitutesRequest], request: Request) -> Response:
    """Return the likeliest words of places: by what is to the left, to the right, and both."""
    service = service_of(request)
    name, _ = service.hosted.model(body.model)
    service.hosted.check(name, body.state, language_model=True)
    sentence, positions = body.sentence, body.positions
    if isinstance(sentence, str) and positions is None and "[" in sentence:
        meant = Marked.read(sentence)
        sentence, positions = list(meant.tokens), [meant.position]
    texts = await texts_of(service, name, [sentence])
    tokens = texts.tokens[0]
    positions = list(range(len(tokens))) if positions is None else positions
    _check_places(positions, len(tokens))
    item = (texts.read[0], positions, body.k)
    # Each place costs a whole softmax, as each token of a score does.
    work = service.hosted.substitutes(name, body.state)
    [found] = await service.compute(work, [item], [len(tokens) + 4 * len(positions)])
    values = {
        "model": name,
        "state": body.state,
        "tokens": tokens,
        "offsets": texts.offsets[0],
        "places": [_place(one, tokens) for one in found],
        "usage": usage(texts),
        "warnings": texts.warnings,
    }
    return formats.json_response(values)


def _check_places(positions: list[int], n_tokens: int) -> None:
    if len(positions) > PLACES:
        raise RequestRejected.over_limit(
            "places", PLACES, len(positions), "places", "Request fewer `positions`."
        )
    if not positions or max(positions) >= n_tokens:
        found = f"position {max(positions)}" if positions else "no position"
        raise RequestRejected(
            422,
            f"Found {found}; the sentence has {n_tokens} tokens, counted from 0.",
            param="positions" if n_tokens else "sentence",
        )


def _place(one: Substitutes, tokens: list[str]) -> dict[str, object]:
    lists = {
        key: [asdict(candidate) for candidate in getattr(one, key)]
        for key in ("forward", "backward", "combined")
    }
    return {"position": one.position, "word": tokens[one.position], **lists}
