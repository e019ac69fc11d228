"""`/v1/similarity`: cosines between tokens, and `/v1/project`: the uses of a word on a plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.cosine import unit
from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.static import StaticVectors
from elmokit.embed.vectors import FloatArray
from elmokit.plot import plane
from elmokit.serve import answers, formats
from elmokit.serve.errors import RequestRejected
from elmokit.serve.limits import MATRIX_TOKENS, POINTS
from elmokit.serve.marks import Uses, uses_of
from elmokit.serve.requests import Json, ProjectRequest, SimilarityRequest
from elmokit.serve.routes.common import (
    Router,
    choices_of,
    layers_of,
    service_of,
    tokens_of,
    usage,
)
from elmokit.serve.texts import texts_of

router = Router("geometry")

_NEAREST = 8  # words that are shown beside the static vector of a word


# ------------------------------------------------------------------------------------- similarity


@router.answer(
    "POST",
    "/v1/similarity",
    answers.SimilarityAnswer,
    404,
)
async def similarity(body: Json[SimilarityRequest], request: Request) -> Response:
    """Return a matrix of cosines for every layer, the average and a mix."""
    service = service_of(request)
    hosted = service.hosted
    name, model = hosted.model(body.model)
    choices = choices_of(body, model.config.n_layers)
    texts = await texts_of(service, name, body.sentences, most_tokens=MATRIX_TOKENS)
    found = await layers_of(request, name, body.state, texts)
    words = [token for tokens in texts.tokens for token in tokens]

    def compare() -> Response:
        layers = np.concatenate(found, axis=1)
        matrices = [{"name": c.label, "matrix": _cosines(c.apply(layers))} for c in choices]
        if body.static and hosted.static is not None:
            matrices.append({"name": "static", "matrix": _static_cosines(hosted.static, words)})
        values: dict[str, Any] = {
            "model": name,
            "state": body.state,
            "sentences": tokens_of(texts),
            "starts": np.cumsum([0, *texts.lengths])[:-1].tolist(),
            "layers": matrices,
            "usage": usage(texts),
            "warnings": texts.warnings,
        }
        if body.gram:
            values["gram"] = np.round(np.einsum("iad,jbd->ijab", layers, layers), 4)
        return formats.json_response(values)

    return await service.run_in_thread(compare)


def _cosines(vectors: FloatArray) -> FloatArray:
    scaled = unit(vectors)
    cosines: FloatArray = np.round(np.clip(scaled @ scaled.T, -1.0, 1.0), 5)
    return cosines


def _static_cosines(table: StaticVectors, words: Sequence[str]) -> list[list[float | None]]:
    known = [word in table for word in words]
    dim = table.vectors.shape[1]
    rows = [
        table.vector(w) if k else np.zeros(dim, np.float32)
        for w, k in zip(words, known, strict=True)
    ]
    cosines = _cosines(np.stack(rows)).tolist() if rows else []
    return [
        [value if known[a] and known[b] else None for b, value in enumerate(row)]
        for a, row in enumerate(cosines)
    ]


# ---------------------------------------------------------------------------------------- project


@router.answer("POST", "/v1/project", answers.ProjectAnswer, 404)
async def project(body: Json[ProjectRequest], request: Request) -> Response:
    """Return for every layer where the uses of a word lie, and the clusters they fall into."""
    service = service_of(request)
    hosted = service.hosted
    name, model = hosted.model(body.model)
    choices = choices_of(body, model.config.n_layers)
    service.limits.check_sentences(len(body.sentences))
    uses = await service.run_in_thread(uses_of, body.sentences, body.word, body.senses)
    if len(uses.points) > POINTS:
        raise RequestRejected.over_limit(
            "points", POINTS, len(uses.points), "uses", "Send fewer sentences."
        )
    texts = await texts_of(service, name, uses.tokens)
    texts = uses.with_offsets(texts)
    found = await layers_of(request, name, body.state, texts)
    vectors = np.stack([found[i][:, k] for i, k in uses.points], axis=1)  # (L + 1, n, 2D)

    def show() -> Response:
        values = {
            "model": name,
            "state": body.state,
            "word": uses.word if body.word is None else body.word,
            "sentences": tokens_of(texts),
            "points": uses.shown(),
            "without": uses.without,
            "layers": _planes(vectors, choices, uses, body.clusters),
            "static": _static(hosted.static, uses.word),
            "usage": usage(texts),
            "warnings": texts.warnings,
        }
        return formats.json_response(values)

    return await service.run_in_thread(show)


def _planes(
    vectors: FloatArray, choices: Sequence[LayerChoice], uses: Uses, clusters: str | int
) -> list[dict[str, Any]]:
    """Describe each space; its plane is turned towards that of the last layer asked for."""
    seen = [choice.apply(vectors) for choice in choices]
    flat = [plane.principal_plane(points) for points in seen]
    layers = [i for i, choice in enumerate(choices) if choice.number is not None]
    reference = flat[layers[-1] if layers else 0][0]
    senses = uses.point_senses()
    known = [i for i, sense in enumerate(senses) if sense is not None]
    names = sorted({str(senses[i]) for i in known})
    numbers = np.array([names.index(str(senses[i])) for i in known], dtype=np.int64)
    rows = []
    for choice, points, (coordinates, shares) in zip(choices, seen, flat, strict=True):
        labels = plane.cluster(points, None if clusters == "auto" else int(clusters))
        grouped = [int(labels[i]) for i in known]
        rows.append(
            {
                "name": choice.label,
                "coordinates": np.round(plane.turned_to(coordinates, reference), 5),
                "explained": [round(share, 4) for share in shares],
                "clusters": labels,
                "silhouette": _round(plane.silhouette(points, labels)),
                "sense_silhouette": _round(plane.silhouette(points[known], numbers)),
                "sense_purity": (
                    _round(plane.purity(grouped, [str(senses[i]) for i in known]))
                    if known
                    else None
                ),
                "mean_cosine": _round(plane.mean_cosine(points)),
            }
        )
    return rows


def _static(table: StaticVectors | None, word: str | None) -> dict[str, Any] | None:
    """Describe the one vector that a static table has for a word, whatever stands around it."""
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
