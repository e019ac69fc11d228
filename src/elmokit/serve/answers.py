"""The bodies of responses, as OpenAPI documents them; routes write them directly from arrays."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from elmokit.embed.substitutes import Candidate


class Limit(BaseModel):
    """A limit that was exceeded."""

    name: str
    value: int
    found: int


class ErrorDetail(BaseModel):
    """What is wrong, what was expected, and how to fix it."""

    status: int
    message: str
    param: str | None = None
    limit: Limit | None = None


class Error(BaseModel):
    """The response to a request that failed."""

    error: ErrorDetail


class TextAnswer(BaseModel):
    """The fields of every response about sentences."""

    model: str
    state: str
    usage: dict[Literal["sentences", "tokens"], int]
    warnings: list[str]


class Tokens(BaseModel):
    """The tokens of a sentence; offsets are null if the request contains tokens."""

    tokens: list[str]
    offsets: list[tuple[int, int]] | None


class SentenceVectorsAnswer(Tokens):
    """Vectors: [layer][token][dimension]; without [layer] for a single layer."""

    vectors: list[Any]


class EmbedAnswer(TextAnswer):
    """The vectors of sentences."""

    layer: str | int | list[str | int]
    pooling: str
    dim: int
    sentences: list[SentenceVectorsAnswer]


class LayerCosines(BaseModel):
    """Cosines of all pairs of tokens; null if a word has no static vector."""

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
    """The principal plane of a layer.

    Coordinates are comparable between the layers of a response: each plane is rotated so that
    points move as little as possible.
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
    """The static vector of the word, which is the same in every sentence."""

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
    """The nearest tokens of each query in each layer."""

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


class Place(BaseModel):
    """The words predicted at a position."""

    position: int
    word: str
    forward: list[Candidate]
    backward: list[Candidate]
    combined: list[Candidate]


class SubstitutesAnswer(TextAnswer, Tokens):
    """The words predicted at positions of a sentence."""

    places: list[Place]


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


class TasksAnswer(BaseModel):
    """The trained task models."""

    tasks: list[TaskCard]


class TaskAnswer(BaseModel):
    """The predictions for each example; several if a text contains several sentences."""

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


class EmbeddingsAnswer(BaseModel):
    """The vectors of texts, as OpenAI's clients expect them."""

    object: Literal["list"]
    data: list[EmbeddingAnswer]
    model: str
    usage: dict[Literal["prompt_tokens", "total_tokens"], int]


class Health(BaseModel):
    """The status of the service."""

    status: Literal["ok", "loading", "stopping"]
