"""`/v1/score` and `/v1/substitutes`: the predictions of both language models."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.scoring import SentenceScore
from elmokit.embed.substitutes import Substitutes
from elmokit.serve import answers, formats
from elmokit.serve.errors import RequestRejected
from elmokit.serve.limits import PLACES
from elmokit.serve.requests import ScoreRequest, SubstitutesRequest
from elmokit.serve.routes.common import OrjsonRoute, service_of
from elmokit.serve.texts import texts_of
from elmokit.text.marked import Marked

router = APIRouter(tags=["language models"], route_class=OrjsonRoute)


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
    if len(positions) > PLACES:
        raise RequestRejected.over_limit(
            "places", PLACES, len(positions), "places", "Request fewer `positions`."
        )
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
