"""`/v1/similarity`: cosines between tokens; `/v1/project`: the uses of a word on a plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.cosine import unit
from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.static import StaticVectors
from elmokit.embed.vectors import FloatArray
from elmokit.plot import plane
from elmokit.progress import plural
from elmokit.serve import answers, formats
from elmokit.serve.errors import RequestRejected, check_limit
from elmokit.serve.limits import MATRIX_TOKENS, POINTS
from elmokit.serve.requests import ProjectRequest, SimilarityRequest
from elmokit.serve.routes.common import OrjsonRoute, choices_of, layers_of, service_of
from elmokit.serve.texts import find_uses, texts_of

router = APIRouter(tags=["geometry"], route_class=OrjsonRoute)

_NEAREST = 8  # nearest words of a static vector


# ------------------------------------------------------------------------------------- similarity


@router.post("/v1/similarity", response_model=answers.SimilarityAnswer)
async def similarity(body: SimilarityRequest, request: Request) -> Response:
    """Return a matrix of cosines for every layer, the average and a mix."""
    service = service_of(request)
    static = service.hosted.static
    name, model = service.hosted.model(body.model)
    choices = choices_of(body, model.config.n_layers)
    texts = await texts_of(service, name, body.sentences, MATRIX_TOKENS)
    sentences = await layers_of(request, name, body.state, texts)
    words = [token for tokens in texts.tokens for token in tokens]

    def compare() -> Response:
        layers = np.concatenate(sentences, axis=1)
        matrices: list[dict[str, Any]] = [
            {"name": c.label, "matrix": _cosines(c.apply(layers))} for c in choices
        ]
        if body.static and static is not None:
            matrices.append({"name": "static", "matrix": _static_cosines(static, words)})
        answer = {
            **texts.answer(name, body.state),
            "sentences": texts.sentences(),
            "starts": np.cumsum([0, *texts.lengths])[:-1].tolist(),
            "layers": matrices,
        }
        if body.gram:
            answer["gram"] = np.round(np.einsum("iad,jbd->ijab", layers, layers), 4)
        return formats.json_response(answer)

    return await service.run_in_thread(compare)


def _cosines(vectors: FloatArray) -> FloatArray:
    scaled = unit(vectors)
    cosines: FloatArray = np.round(np.clip(scaled @ scaled.T, -1.0, 1.0), 5)
    return cosines


def _static_cosines(table: StaticVectors, words: Sequence[str]) -> FloatArray:
    """Return the cosines of static vectors; NaN, which is null in JSON, for unknown words."""
    vectors, known = table.table(words)
    cosines = _cosines(vectors)
    cosines[~np.outer(known, known)] = np.nan
    return cosines


# ---------------------------------------------------------------------------------------- project


@router.post("/v1/project", response_model=answers.ProjectAnswer)
async def project(body: ProjectRequest, request: Request) -> Response:
    """Return the positions of the uses of a word in every layer, and their clusters."""
    service = service_of(request)
    name, model = service.hosted.model(body.model)
    choices = choices_of(body, model.config.n_layers)
    check_limit("max_sentences", service.limits.sentences, len(body.sentences), "sentences")
    senses = [None] * len(body.sentences) if body.senses is None else body.senses
    if len(senses) != len(body.sentences):
        raise RequestRejected(
            422,
            f"Found {plural(len(senses), 'sense')} for {plural(len(body.sentences), 'sentence')}; "
            "expected one per sentence (null if unknown).",
            param="senses",
        )
    uses = await service.run_in_thread(find_uses, body.sentences, body.word)
    points = [
        {"sentence": i, "position": k, "word": use.tokens[k], "sense": senses[i]}
        for i, use in enumerate(uses)
        for k in use.positions
    ]
    check_limit("points", POINTS, len(points), "uses of the word")
    words = [str(point["word"]) for point in points]
    is_one_word = len({word.casefold() for word in words}) == 1
    word = words[0] if is_one_word else None
    texts = await texts_of(service, name, [use.tokens for use in uses])
    texts = replace(texts, offsets=[use.offsets for use in uses])
    layers = await layers_of(request, name, body.state, texts)
    vectors = np.concatenate(  # (L + 1, n, 2D)
        [h[:, use.positions] for h, use in zip(layers, uses, strict=True)], axis=1
    )

    def show() -> Response:
        answer = {
            **texts.answer(name, body.state),
            "word": word if body.word is None else body.word,
            "sentences": texts.sentences(),
            "points": points,
            "without": [i for i, use in enumerate(uses) if not use.positions],
            "layers": _planes(vectors, choices, [p["sense"] for p in points], body.clusters),
            "static": _static(service.hosted.static, word),
        }
        return formats.json_response(answer)

    return await service.run_in_thread(show)


def _planes(
    vectors: FloatArray,
    choices: Sequence[LayerChoice],
    senses: Sequence[Any],
    clusters: str | int,
) -> list[dict[str, Any]]:
    """Describe each layer; its plane is rotated towards that of the last requested layer."""
    chosen = [choice.apply(vectors) for choice in choices]
    planes = [plane.principal_plane(points) for points in chosen]
    layers = [i for i, choice in enumerate(choices) if choice.number is not None]
    reference = planes[layers[-1] if layers else 0][0]
    known = [i for i, sense in enumerate(senses) if sense is not None]
    known_senses = [str(senses[i]) for i in known]
    _, sense_numbers = np.unique(known_senses, return_inverse=True)
    rows = []
    for choice, points, (coordinates, shares) in zip(choices, chosen, planes, strict=True):
        labels = plane.cluster(points, None if clusters == "auto" else int(clusters))
        purity = plane.purity(labels[known].tolist(), known_senses) if known else None
        rows.append(
            {
                "name": choice.label,
                "coordinates": np.round(plane.aligned(coordinates, reference), 5),
                "explained": [round(share, 4) for share in shares],
                "clusters": labels,
                "silhouette": _round(plane.silhouette(points, labels)),
                "sense_silhouette": _round(plane.silhouette(points[known], sense_numbers)),
                "sense_purity": _round(purity),
                "mean_cosine": _round(plane.mean_cosine(points)),
            }
        )
    return rows


def _static(table: StaticVectors | None, word: str | None) -> dict[str, Any] | None:
    """Describe the static vector of a word, which is the same in every sentence."""
    if table is None or word is None:
        return None
    known = word in table
    near = table.neighbors(word, _NEAREST) if known else []
    return {
        "table": table.name,
        "word": word,
        "known": known,
        "neighbors": [(other, round(cosine, 4)) for other, cosine in near],
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
