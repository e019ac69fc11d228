"""Functions that the routes share: parse layers, tokenize sentences and compute layers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import orjson
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.model import ElmoModel
from elmokit.embed.static import StaticVectors
from elmokit.embed.tokenized import (
    TokenizedSentence,
    as_tokens,
    truncated_tokens,
    truncation_warning,
)
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError, DataError
from elmokit.serve.errors import RequestRejected, check_limit
from elmokit.serve.requests import LayerRequest
from elmokit.serve.service import Service
from elmokit.text.marked import MarkedWord

T = TypeVar("T")

#: Maximum size in bytes of a request that is tokenized on the event loop. Tokenizing a request of
#: this size takes up to 0.1 seconds.
_MAX_EVENT_LOOP_BYTES = 65536
#: Number of bytes that can be tokenized in about the time it takes to embed a token.
_BYTES_PER_COST = 2048


class _OrjsonRequest(Request):
    async def json(self) -> Any:
        return orjson.loads(await self.body())


class OrjsonRoute(APIRoute):
    """A route that parses JSON with orjson, which rejects lone surrogates and NaN."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the request handler."""
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(_OrjsonRequest(request.scope, request.receive))

        return handle_json


def get_service(request: Request) -> Service:
    """Return the service that handles a request."""
    service: Service = request.app.state.service
    return service


def parse_layer_choices(
    body: LayerRequest, elmo: ElmoModel, gamma: float = 1.0
) -> list[LayerChoice]:
    """Parse the layers of a request. Each choice gives one vector per token."""
    try:
        return LayerChoice.parse_all(body.layer, elmo.config.n_layers, body.mix, gamma)
    except ConfigError as error:
        raise RequestRejected(str(error), param="layer" if body.mix is None else "mix") from error


def json_response(values: Any) -> Response:
    """Return values and arrays as JSON. Floats have the fewest digits that preserve their value."""
    body = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, media_type="application/json")


# ------------------------------------------------------------------------------------- sentences


@dataclass(frozen=True)
class Texts:
    """The sentences of a request.

    Attributes:
        model: The name of the model.
        elmo: The model.
        tokens: The tokens of each sentence.
        offsets: For each sentence, the (start, end) of each token; None for a list of tokens.
        truncated: The tokens of each sentence, with very long tokens truncated.
        warnings: Warnings for the client.
    """

    model: str
    elmo: ElmoModel
    tokens: list[list[str]]
    offsets: list[list[tuple[int, int]] | None]
    truncated: list[list[str]]
    warnings: list[str]

    @property
    def lengths(self) -> list[int]:
        """The number of tokens in each sentence."""
        return [len(tokens) for tokens in self.tokens]

    def sentences(self) -> list[dict[str, Any]]:
        """Return the tokens and offsets of each sentence as JSON values."""
        rows = zip(self.tokens, self.offsets, strict=True)
        return [{"tokens": tokens, "offsets": offsets} for tokens, offsets in rows]

    def response(self, state: str) -> dict[str, Any]:
        """Return the fields of `TextResponse`."""
        usage = {"sentences": len(self.tokens), "tokens": sum(self.lengths)}
        return {"model": self.model, "state": state, "usage": usage, "warnings": self.warnings}


async def tokenize_request(
    request: Request, model: str | None, sentences: Sequence[str | list[str]]
) -> Texts:
    """Tokenize the sentences of a request. Reject it if it has too many sentences or tokens."""
    service = get_service(request)
    name, elmo = service.resources.model(model)
    check_limit("max_sentences", service.limits.sentences, len(sentences), "sentences")

    def tokenize() -> list[TokenizedSentence]:
        return [as_tokens(sentence, i) for i, sentence in enumerate(sentences)]

    tokenized = await run_tokenizer(request, tokenize)
    tokens = [words for words, _ in tokenized]
    check_limit("max_tokens", service.limits.tokens, sum(map(len, tokens)), "tokens")
    # Characters beyond this limit do not affect the vectors, but would fill up the token cache.
    max_characters = service.resources.max_characters[name]
    truncated = [[token[:max_characters] for token in words] for words in tokens]
    long_tokens = truncated_tokens(elmo.config, tokens)
    warnings = [truncation_warning(elmo.config, long_tokens)] if long_tokens else []
    return Texts(name, elmo, tokens, [offsets for _, offsets in tokenized], truncated, warnings)


async def compute_layers(
    request: Request,
    texts: Texts,
    state: str,
    reduce: Callable[[Any], Any] = lambda layers: layers,
    values: int | None = None,
) -> list[FloatArray]:
    """Compute the layers of sentences.

    Args:
        request: The request.
        texts: The sentences.
        state: The initial state of each sentence.
        reduce: Applied to the layers of each sentence, (L + 1, T, 2D), to keep only the values that
            the response needs.
        values: The total number of values that `reduce` returns. Default: all values of all layers.
    """
    service = get_service(request)
    service.resources.check_supported(texts.model, state)
    if values is None:
        values = sum(texts.lengths) * texts.elmo.config.n_layers * texts.elmo.config.output_dim
    check_limit("max_values", service.limits.values, values, "response values")
    request.state.reserve_memory(values)
    work = service.resources.work("layers", texts.model, state)
    costs = [max(1, n) for n in texts.lengths]
    return await service.batcher.submit(work, [(t, reduce) for t in texts.truncated], costs)


async def run_queued(request: Request, kind: str, function: Callable[[], T], cost: int) -> T:
    """Call a function on the compute thread, so that the limits of the queue apply to it.

    Args:
        request: The request.
        kind: The label in the metrics.
        function: The function.
        cost: An estimate of the time, as a multiple of the time to embed a token.
    """
    service = get_service(request)
    work = service.resources.work(kind)
    results: list[T] = await service.batcher.submit(work, [function], [max(1, cost)])
    return results[0]


async def run_tokenizer(request: Request, function: Callable[[], T]) -> T:
    """Call a function that tokenizes a request, on the compute thread if the request is large."""
    size = len(await request.body())
    if size <= _MAX_EVENT_LOOP_BYTES:
        return function()
    return await run_queued(request, "tokenize", function, size // _BYTES_PER_COST)


# ----------------------------------------------------------------------------------------- words


class Uses(NamedTuple):
    """The uses of a word in a sentence.

    Attributes:
        tokens: The tokens of the sentence, without brackets.
        offsets: The (start, end) of each token in the sentence; None for lists of tokens and for
            sentences with brackets.
        positions: The positions of the word.
    """

    tokens: list[str]
    offsets: list[tuple[int, int]] | None
    positions: list[int]


def find_uses(sentences: Sequence[str | list[str]], word: str | None) -> list[Uses]:
    """Find the word in brackets, or all occurrences of `word`, in each sentence."""
    uses = [_find_uses(sentence, i, word) for i, sentence in enumerate(sentences)]
    if not any(use.positions for use in uses):
        raise RequestRejected(f"The token '{word:.60}' does not occur in the text.", param="word")
    return uses


def _find_uses(sentence: str | list[str], i: int, word: str | None) -> Uses:
    if isinstance(sentence, str) and (word is None or "[" in sentence):
        try:
            marked = MarkedWord.parse(sentence)
            return Uses(list(marked.tokens), None, [marked.position])
        except DataError as error:
            if word is None:
                message = f"Sentence {i}: {error} Alternatively, set `word`."
                raise RequestRejected(message, param="sentences") from error
    elif word is None:
        raise RequestRejected(
            f"Sentence {i} is a list of tokens: set `word` to select a token.", param="word"
        )
    tokens, offsets = as_tokens(sentence, i)
    positions = [k for k, token in enumerate(tokens) if token.casefold() == word.casefold()]
    return Uses(tokens, offsets, positions)


def static_neighbors(
    table: StaticVectors | None, word: str | None, k: int
) -> list[dict[str, Any]] | None:
    """Return the words with the most similar static vectors, or None if the word has no vector."""
    if table is None or word is None or word not in table:
        return None
    return [{"word": w, "score": round(cosine, 6)} for w, cosine in table.neighbors(word, k)]
