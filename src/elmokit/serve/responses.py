"""The schemas of response bodies, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from elmokit.embed.substitutes import Candidate


class ErrorDetail(BaseModel):
    """An error, and the limit that was exceeded, if any."""

    status: int
    message: str
    param: str | None = None
    limit: dict[Literal["name", "value", "actual"], str | int] | None = None


class ErrorResponse(BaseModel):
    """The response to a failed request."""

    error: ErrorDetail


class TextResponse(BaseModel):
    """The fields that the responses to requests with sentences have in common."""

    model: str
    state: str
    usage: dict[Literal["sentences", "tokens"], int]
    warnings: list[str]


class Tokens(BaseModel):
    """The tokens of a sentence.

    Offsets are null if the request contains a list of tokens or selects a word with brackets.
    """

    tokens: list[str]
    offsets: list[tuple[int, int]] | None


class SentenceVectors(Tokens):
    """The vectors of a sentence as [layer][token][dimension].

    [layer] is omitted if a single layer is requested, and [token] with pooling.
    """

    vectors: list[Any]


class EmbedResponse(TextResponse):
    """The vectors of sentences."""

    layer: str | int | list[str | int]
    pooling: str
    dim: int
    sentences: list[SentenceVectors]


class LayerCosines(BaseModel):
    """Cosine similarities of all pairs of tokens; null if a word has no static vector."""

    name: str
    matrix: list[list[float | None]]


class SimilarityResponse(TextResponse):
    """Cosine similarities in each layer. Rows and columns are the tokens of all sentences."""

    sentences: list[Tokens]
    starts: list[int]
    layers: list[LayerCosines]
    gram: list[list[list[list[float]]]] | None = None


class Point(BaseModel):
    """One use of the word."""

    sentence: int
    position: int
    word: str
    sense: str | None


class Plane(BaseModel):
    """The projection of a layer onto the plane of its first two principal components.

    The points are rotated in the plane to match those of the last single layer. `explained` is the
    fraction of the variance along each axis.
    """

    name: str
    coordinates: list[tuple[float, float]]
    explained: tuple[float, float]
    clusters: list[int]
    sense_purity: float | None
    mean_cosine: float


class StaticNeighbor(BaseModel):
    """A word with a similar static vector."""

    word: str
    score: float


class ProjectResponse(TextResponse):
    """The uses of a word in each layer."""

    word: str | None
    sentences: list[Tokens]
    points: list[Point]
    sentences_without_word: list[int]
    layers: list[Plane]
    static: list[StaticNeighbor] | None


class NeighborsResponse(BaseModel):
    """The tokens nearest to each query, by layer."""

    model: str
    index: dict[str, Any]
    results: list[dict[str, Any]]


class SentenceScores(Tokens):
    """Log probability (natural logarithm) of each token in both directions, and perplexities."""

    forward: list[float]
    backward: list[float]
    end: float
    begin: float
    unknown: list[bool]
    perplexity: float
    forward_perplexity: float
    backward_perplexity: float
    known_perplexity: float
    targets: int
    unknown_tokens: int
    state: str


class ScoreResponse(TextResponse):
    """The scores of sentences."""

    sentences: list[SentenceScores]


class Prediction(BaseModel):
    """The words predicted at a position."""

    position: int
    word: str
    forward: list[Candidate]
    backward: list[Candidate]
    combined: list[Candidate]


class SubstitutesResponse(TextResponse, Tokens):
    """The words predicted at positions of a sentence."""

    positions: list[Prediction]


class TaskCard(BaseModel):
    """A trained task model."""

    name: str
    task: str
    title: str
    metric: str
    inputs: list[str]
    elmo: str | None
    place: str | None
    mixes: dict[str, Any]
    scores: dict[str, Any]
    labels: dict[str, Any]


class TasksResponse(BaseModel):
    """The trained task models."""

    tasks: list[TaskCard]


class TaskResponse(BaseModel):
    """The predictions for each example, one per sentence if a text has several sentences."""

    task: str
    results: list[list[dict[str, Any]]]
    warnings: list[str]


class ModelCard(BaseModel):
    """A model in OpenAI's format, with additional fields."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    default: bool
    n_layers: int
    dim: int
    parameters: int
    language: str | None
    license: str | None
    language_model: bool
    vocabulary: int | None
    warm_state: bool
    precision: str
    device: str
    fingerprint: str


class ModelsResponse(BaseModel):
    """The models and all other resources of the service."""

    object: Literal["list"]
    data: list[ModelCard]
    index: dict[str, Any] | None
    static: str | None
    tasks: list[str]
    limits: dict[str, float]
    version: str


class EmbeddingResponse(BaseModel):
    """The vector of a text as a list of numbers, or as base64-encoded little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsResponse(BaseModel):
    """The vectors of texts in OpenAI's format."""

    object: Literal["list"]
    data: list[EmbeddingResponse]
    model: str
    usage: dict[Literal["prompt_tokens", "total_tokens"], int]


class Health(BaseModel):
    """The status of the service."""

    status: Literal["ok", "loading", "stopping"]
