"""The bodies of requests, as the routes accept them and OpenAPI documents them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
)
from pydantic_core import core_schema

from elmokit.embed.layer_choice import ALL_AND_AVERAGE
from elmokit.serve import limits

_READ = "I read the book yesterday."
_LETTER = "Can you read the letter now?"


#: Maximum number of errors to list. Only unknown fields can cause more, see `FailFastList`.
_ERRORS = 100

T = TypeVar("T")
# Validation stops at the first invalid element: a body of 2 MB can contain a million of them, and
# collecting their errors would block the event loop for half a minute.
FailFastList = Annotated[list[T], Field(fail_fast=True)]


class RawJson(bytes):
    """The body of a JSON request, not parsed yet."""


class _FromJson:
    """Parse and validate `RawJson` in one pass, without creating objects for invalid values."""

    def __get_pydantic_core_schema__(
        self, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        def parse(body: object) -> object:
            if not isinstance(body, RawJson):
                return body
            try:
                return source.model_validate_json(body)
            except ValidationError as error:
                if error.error_count() > _ERRORS:
                    raise ValueError(f"{error.error_count():,} fields are invalid") from None
                raise

        return core_schema.no_info_before_validator_function(parse, handler(source))


#: The type of a route's body: one of the models below.
Json = Annotated[T, _FromJson()]


Sentence = Annotated[
    str | FailFastList[str],
    Field(description="A string is tokenized as one sentence; a list of tokens is used as it is."),
]
Sentences = Annotated[FailFastList[Sentence], Field(min_length=1, examples=[[_READ, _LETTER]])]
ModelName = Annotated[str | None, Field(description="A model of /v1/models. Default: the first.")]
State = Annotated[
    Literal["reset", "warm"],
    Field(
        description="Initial state of each sentence: zero (reset) or the stored state of the "
        "model (warm)."
    ),
]
# `LayerChoice` checks whether the model has the layer.
Layer = Annotated[str, Field(max_length=20)] | int
Layers = Annotated[
    Layer | Annotated[FailFastList[Layer], Field(min_length=1, max_length=64)],
    Field(
        description="A layer number, top, average (the mean of all layers), concat (all layers "
        "concatenated), mix (a weighted sum, see `mix`), all (every layer separately), or a list "
        "of these."
    ),
]
# Larger weights overflow float32 in vectors, sums or norms.
Weight = Annotated[float, Field(allow_inf_nan=False, ge=-1e6, le=1e6)]
Mix = Annotated[
    FailFastList[Weight] | None,
    Field(description="Weights s_j of layer mix, one per layer, not normalized."),
]
Gamma = Annotated[Weight, Field(description="Scale gamma of layer mix.")]


class Strict(BaseModel):
    """A request. Unknown fields are errors, so that a misspelled name is not ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ModelRequest(Strict):
    """A request to a model."""

    model: ModelName = None
    state: State = "reset"


class LayerRequest(Strict):
    """A request for layers; by default every layer and the average."""

    layer: Layers = list(ALL_AND_AVERAGE)  # pydantic copies it
    mix: Mix = None


class EmbedRequest(ModelRequest, LayerRequest):
    """Compute the vectors of every token, or their mean."""

    sentences: Sentences
    layer: Layers = "all"
    gamma: Gamma = 1.0
    pooling: Annotated[
        Literal["none", "mean"],
        Field(description="none: one vector per token. mean: one vector per sentence."),
    ] = "none"


class SimilarityRequest(ModelRequest, LayerRequest):
    """Compute the cosines between all tokens of some sentences."""

    sentences: Sentences
    static: Annotated[bool, Field(description="Also compare static vectors, if available.")] = False
    gram: Annotated[
        bool,
        Field(
            description="Also return the dot products of all layers, from which the cosines of any "
            "mix can be computed."
        ),
    ] = False


class ProjectRequest(ModelRequest, LayerRequest):
    """Project the uses of a word onto a plane."""

    sentences: Annotated[
        FailFastList[Sentence],
        Field(
            min_length=1,
            examples=[["The [bank] lent us money .", "We sat on the [bank] of the river ."]],
            description="Sentences with the word in brackets, or without brackets if `word` is "
            "set.",
        ),
    ]
    word: Annotated[
        str | None,
        Field(description="Use every occurrence of this word; matching is case-insensitive."),
    ] = None
    senses: Annotated[
        FailFastList[str | None] | None,
        Field(description="The sense of each sentence, or null."),
    ] = None
    clusters: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=1, le=12)],
        Field(description="Number of clusters. auto: the best-separated number, up to 6."),
    ] = "auto"


class MarkedSentence(Strict):
    """A word in a sentence, selected by brackets, by its position or by the word itself."""

    sentence: Sentence
    position: Annotated[
        int | None, Field(ge=0, description="Position of the token, counted from 0.")
    ] = None
    word: Annotated[str | None, Field(description="Use the first occurrence of this word.")] = None


class NeighborsRequest(LayerRequest):
    """Find the nearest tokens in the index."""

    queries: Annotated[
        FailFastList[str | Annotated[int, Field(ge=0)] | MarkedSentence],
        Field(
            min_length=1,
            max_length=limits.QUERIES,
            examples=[["He will [play] in the final ."]],
            description="Sentences with a word in brackets, or token numbers of the index.",
        ),
    ]
    k: Annotated[int, Field(ge=1, le=limits.LISTED)] = 10
    words: Annotated[
        Literal["any", "same", "other"], Field(description="Which words may be neighbors.")
    ] = "any"
    distinct: Annotated[
        Literal["token", "sentence", "word"], Field(description="What is listed at most once.")
    ] = "sentence"
    other_sentences: Annotated[
        bool, Field(description="Exclude the sentence of the query if it is in the index.")
    ] = False
    min_count: Annotated[
        int, Field(ge=1, description="Minimum number of occurrences of a word in the index.")
    ] = 1
    static: Annotated[bool, Field(description="Also list the nearest words by static vectors.")] = (
        False
    )


class ScoreRequest(ModelRequest):
    """Compute the probability of sentences under both language models."""

    sentences: Sentences


class SubstitutesRequest(ModelRequest):
    """List the words that both language models predict."""

    sentence: Annotated[Sentence, Field(examples=["I [read] the book ."])]
    positions: Annotated[
        FailFastList[Annotated[int, Field(ge=0)]] | None,
        Field(
            description="Positions, counted from 0. Default: the word in brackets, or all "
            f"positions (at most {limits.PLACES})."
        ),
    ] = None
    k: Annotated[int, Field(ge=1, le=limits.LISTED)] = 10


class TaskRequest(Strict):
    """Apply a trained task model to examples."""

    examples: Annotated[
        FailFastList[str | dict[str, Any]],
        Field(
            min_length=1,
            examples=[["Ann met Bob in Paris ."]],
            description="Raw text, or objects in the JSON Lines format of the task.",
        ),
    ]


class EmbeddingsRequest(BaseModel):
    """Compute the vectors of texts, as OpenAI's clients request them."""

    model_config = ConfigDict(extra="ignore", strict=True)

    input: Annotated[
        Annotated[str, Field(min_length=1)]
        | Annotated[FailFastList[Annotated[str, Field(min_length=1)]], Field(min_length=1)],
        Field(examples=[_READ]),
    ]
    model: Annotated[str, Field(examples=["english"])]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[
        int | None, Field(ge=1, description="Must be the dimension of the model.")
    ] = None
    user: str | None = None
