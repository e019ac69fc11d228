"""The schemas of request bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from elmokit.embed.layer_choice import ALL_AND_AVERAGE

#: The names and values of the limits that cannot be configured.
FIXED_LIMITS = {
    "matrix_tokens": 256,  # tokens in a similarity matrix, which has one cell per pair of tokens
    "uses": 512,  # uses of a word in a projection
    "positions": 128,  # positions for substitutes; each requires a full softmax
    "k": 100,  # words or neighbors in a list
    "task_bytes": 2**19,  # bytes in a request to a task model, because parsing is slow
    "queries": 16,  # queries for neighbors; each is compared with every token in the index
}

T = TypeVar("T")
# Validation stops at the first invalid element. A body of 2 MB can contain a million elements, and
# collecting all errors would block the event loop for half a minute.
FailFastList = Annotated[list[T], Field(fail_fast=True)]

# More fields than any valid request has. Bounds the number of errors about unknown fields.
_MAX_FIELDS = 32

_EXAMPLE = "I read the book yesterday."
_SECOND_EXAMPLE = "Can you read the letter now?"

Sentence = str | FailFastList[str]
Sentences = Annotated[
    FailFastList[Sentence], Field(min_length=1, examples=[[_EXAMPLE, _SECOND_EXAMPLE]])
]
# `LayerChoice` checks that the model has the layer.
Layer = Annotated[str, Field(max_length=20)] | int
Layers = Layer | Annotated[FailFastList[Layer], Field(min_length=1, max_length=64)]
# Larger weights can overflow float32 in vectors, sums or norms.
Weight = Annotated[float, Field(allow_inf_nan=False, ge=-1e6, le=1e6)]
Position = Annotated[int, Field(ge=0)]
ListLength = Annotated[int, Field(ge=1, le=FIXED_LIMITS["k"])]


class StrictRequest(BaseModel):
    """A request. Unknown fields are rejected, because they may be misspelled."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _check_number_of_fields(cls, values: Any) -> Any:
        if isinstance(values, dict) and len(values) > _MAX_FIELDS:
            raise ValueError(f"{len(values):,} fields; expected at most {_MAX_FIELDS}")
        return values


class ModelRequest(StrictRequest):
    """A request to a model."""

    model: str | None = None
    """A model from /v1/models. Default: the first model."""
    state: Literal["reset", "warm"] = "reset"
    """Initial state of each sentence: zero (reset) or the stored state of the model (warm)."""


class SentencesRequest(ModelRequest):
    """A request with a list of sentences."""

    sentences: Sentences
    """A string is tokenized as one sentence; a list of tokens is used unchanged."""


class LayerRequest(StrictRequest):
    """A request that selects layers."""

    layer: Layers = list(ALL_AND_AVERAGE)  # pydantic copies the default value
    """A layer number, top, average (the mean of all layers), concat (all layers concatenated), mix
    (a weighted sum, see `mix`), all (every layer separately), or a list of these. Default: all
    layers and their average."""
    mix: FailFastList[Weight] | None = None
    """With layer mix: the weights s_j, one per layer. They are not normalized."""


class EmbedRequest(SentencesRequest, LayerRequest):
    """Compute the vectors of all tokens, or the mean vector of each sentence."""

    layer: Layers = "all"
    gamma: Weight = 1.0
    """With layer mix: the scale of the weighted sum."""
    pooling: Literal["none", "mean"] = "none"
    """none: one vector per token. mean: one vector per sentence."""


class SimilarityRequest(SentencesRequest, LayerRequest):
    """Compute the cosine similarities between all tokens of several sentences."""

    static: bool = False
    """Also compare the static vectors of the words, if available."""
    gram: bool = False
    """Also return the dot products of all pairs of token vectors for all pairs of layers. The
    cosines for any mix can be computed from them."""


class ProjectRequest(SentencesRequest, LayerRequest):
    """Project the uses of a word to two dimensions."""

    sentences: Annotated[
        Sentences, Field(examples=[["The [bank] lent money .", "We sat on the [bank] ."]])
    ]
    """Sentences with the word in brackets, or without brackets if `word` is set."""
    word: str | None = None
    """Use all occurrences of this word. Matching is case-insensitive."""
    senses: FailFastList[str | None] | None = None
    """The sense of the word in each sentence, or null if it is unknown."""
    clusters: Literal["auto"] | Annotated[int, Field(ge=1, le=12)] = "auto"
    """Number of clusters. auto: the number with the best silhouette score, up to 6."""


class MarkedSentence(StrictRequest):
    """A word in a sentence, selected by brackets, by its position or by the word itself."""

    sentence: Sentence
    position: Position | None = None
    """Position of the token, counted from 0."""
    word: str | None = None
    """Use the first occurrence of this word."""


class NeighborsRequest(LayerRequest):
    """Find the tokens in the index that are nearest to each query."""

    queries: Annotated[
        FailFastList[str | Position | MarkedSentence],
        Field(
            min_length=1,
            max_length=FIXED_LIMITS["queries"],
            examples=[["He will [play] in the final ."]],
        ),
    ]
    """Sentences with a word in brackets, or ids of tokens in the index."""
    k: ListLength = 10
    words: Literal["any", "same", "other"] = "any"
    """Words that can be neighbors. any: all words. same: only the query word. other: only other
    words."""
    distinct: Literal["token", "sentence", "word"] = "sentence"
    """How to remove duplicates. token: keep all tokens. sentence: list identical sentences once.
    word: list only the nearest token of each word."""
    other_sentences: bool = False
    """Exclude sentences that are identical to the query sentence."""
    min_count: Annotated[int, Field(ge=1)] = 1
    """Minimum number of occurrences of a neighbor's word in the index."""
    static: bool = False
    """Also list the nearest words according to static vectors, if available."""


class ScoreRequest(SentencesRequest):
    """Score sentences with the forward and backward language models."""


class SubstitutesRequest(ModelRequest):
    """List the words that the forward and backward language models predict at some positions."""

    sentence: Annotated[Sentence, Field(examples=["I [read] the book ."])]
    positions: FailFastList[Position] | None = None
    """Positions, counted from 0. Default: the word in brackets, or all positions."""
    k: ListLength = 10


class TaskRequest(StrictRequest):
    """Apply a trained task model to examples."""

    examples: Annotated[
        FailFastList[str | dict[str, Any]],
        Field(min_length=1, examples=[["Ann met Bob in Paris ."]]),
    ]
    """Raw text, or objects in the JSON Lines format of the task."""


class EmbeddingsRequest(BaseModel):
    """Compute the vectors of texts for OpenAI clients. Unknown fields are ignored."""

    model_config = ConfigDict(strict=True, use_attribute_docstrings=True)

    input: Annotated[
        Annotated[str, Field(min_length=1)]
        | Annotated[FailFastList[Annotated[str, Field(min_length=1)]], Field(min_length=1)],
        Field(examples=[_EXAMPLE]),
    ]
    model: Annotated[str, Field(examples=["english"])]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int | None, Field(ge=1)] = None
    """Must be equal to the number of dimensions of the model."""
