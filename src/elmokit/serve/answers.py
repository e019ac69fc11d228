"""Answers, as OpenAPI documents them; routes write them straight from arrays."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel


class Limit(BaseModel):
    """A limit that was passed."""

    name: str
    value: int
    found: int


class ErrorDetail(BaseModel):
    """What was found, what was expected, what to do."""

    type: str
    status: int
    message: str
    param: str | None = None
    limit: Limit | None = None


class Error(BaseModel):
    """A request that is not answered."""

    error: ErrorDetail


class Usage(BaseModel):
    """What was read."""

    sentences: int
    tokens: int


class TextAnswer(BaseModel):
    """What every answer about sentences has."""

    model: str
    state: str
    usage: Usage
    warnings: list[str]


class Tokens(BaseModel):
    """The tokens of a sentence; offsets are null where tokens were given."""

    tokens: list[str]
    offsets: list[tuple[int, int]] | None


class SentenceVectorsAnswer(Tokens):
    """Vectors: [layer][token][number]; without [layer] if one was asked for."""

    vectors: list[Any]


class EmbedAnswer(TextAnswer):
    """The vectors of sentences."""

    layer: str | int | list[str | int]
    pooling: str
    dim: int
    sentences: list[SentenceVectorsAnswer]


class LayerCosines(BaseModel):
    """Cosines of all tokens with all tokens; null where a word has no static vector."""

    name: str
    matrix: list[list[float | None]]


class SimilarityAnswer(TextAnswer):
    """Cosines in each layer; rows and columns are the tokens of all sentences in order."""

    sentences: list[Tokens]
    starts: list[int]
    layers: list[LayerCosines]
    gram: list[list[list[list[float]]]] | None = None


class Point(BaseModel):
    """A use of the word."""

    sentence: int
    position: int
    word: str
    sense: str | None


class Plane(BaseModel):
    """A layer seen from where its points spread most.

    Coordinates are comparable between the layers of an answer: each plane is turned so that points
    move as little as possible.
    """

    name: str
    coordinates: list[tuple[float, float]]
    explained: tuple[float, float]
    clusters: list[int]
    silhouette: float | None
    sense_silhouette: float | None
    sense_purity: float | None
    mean_cosine: float


class StaticWord(BaseModel):
    """The one vector that a static table has for the word, wherever it stands."""

    table: str
    word: str
    known: bool
    neighbors: list[tuple[str, float]]


class ProjectAnswer(TextAnswer):
    """The uses of a word in each layer."""

    word: str | None
    sentences: list[Tokens]
    points: list[Point]
    without: list[int]
    layers: list[Plane]
    static: StaticWord | None


class NeighborsAnswer(BaseModel):
    """For each query the nearest tokens in each layer."""

    model: str
    index: dict[str, Any]
    results: list[dict[str, Any]]


class SentenceScoreAnswer(Tokens):
    """Natural log p of each token, and perplexities."""

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


class ScoreAnswer(TextAnswer):
    """The scores of sentences."""

    sentences: list[SentenceScoreAnswer]


class CandidateAnswer(BaseModel):
    """A word and its probability."""

    word: str
    probability: float


class Place(BaseModel):
    """What is expected in a place."""

    position: int
    word: str
    forward: list[CandidateAnswer]
    backward: list[CandidateAnswer]
    combined: list[CandidateAnswer]


class SubstitutesAnswer(TextAnswer):
    """What is expected in the places of a sentence."""

    tokens: list[str]
    offsets: list[tuple[int, int]] | None
    places: list[Place]


class MixAnswer(BaseModel):
    """The weights that a task learned."""

    s: list[float]
    gamma: float


class TaskCard(BaseModel):
    """A trained task."""

    name: str
    task: str
    title: str
    metric: str
    inputs: list[str]
    elmo: str | None
    place: str | None
    mixes: dict[str, MixAnswer]
    scores: dict[str, Any]
    labels: dict[str, Any]


class TasksAnswer(BaseModel):
    """The trained tasks."""

    tasks: list[TaskCard]


class TaskAnswer(BaseModel):
    """For each example its predictions: more than one where a text holds several sentences."""

    task: str
    results: list[list[dict[str, Any]]]
    warnings: list[str]


class ModelCard(BaseModel):
    """A model."""

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


class ModelsAnswer(BaseModel):
    """The models, and what else is served."""

    object: Literal["list"]
    data: list[ModelCard]
    index: dict[str, Any] | None
    static: str | None
    tasks: list[str]
    limits: dict[str, float]
    version: str


class EmbeddingAnswer(BaseModel):
    """The vector of a text: numbers, or the base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(BaseModel):
    """What was read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """As OpenAI's clients expect it."""

    object: Literal["list"]
    data: list[EmbeddingAnswer]
    model: str
    usage: EmbeddingsUsage


class Health(BaseModel):
    """Where the service stands."""

    status: Literal["ok", "loading", "stopping"]
