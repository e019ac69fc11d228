from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elmokit.text import tokenize as module
from elmokit.text.ascii_classes import ascii_classes
from elmokit.text.tokenize import Token, tokenize, words
from tests.text import ewt

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
# Text from the characters in the rules, combined in ways that letters alone never are.
MARKED_TEXT = st.text(
    "abAI nst'`.,:;!?-/@#$%&*_()<>=+0123\u2019\u2014\u4e2d\u0301\u200d", max_size=40
)


# --- invariants ----------------------------------------------------------------------------------


@given(ANY_TEXT | MARKED_TEXT)
@example("\x00a\x01\x02\x03\x04\x05\x06 \x7f\x1b[0m")
@example("\ud800 a\udfff\ud83d")
@example("a\x1cb\x85c\u2028d\u3000e\xa0f")
def test_tokens_contain_all_characters_except_whitespace(sentence: str) -> None:
    assert "".join(token.text for token in tokenize(sentence)) == "".join(sentence.split())


@given(ANY_TEXT | MARKED_TEXT)
def test_offsets_match_the_tokens_and_never_overlap(sentence: str) -> None:
    position = 0
    for token in tokenize(sentence):
        assert position <= token.start < token.end
        assert sentence[token.start : token.end] == token.text
        position = token.end


@given(ANY_TEXT | MARKED_TEXT)
def test_no_token_contains_whitespace(sentence: str) -> None:
    assert all(word.split() == [word] for word in words(sentence))


@given(ANY_TEXT | MARKED_TEXT)
def test_words_are_the_tokens_without_offsets(sentence: str) -> None:
    assert words(sentence) == [token.text for token in tokenize(sentence)]


@given(ANY_TEXT)
def test_ascii_classes_keep_length_and_whitespace(text: str) -> None:
    seen = ascii_classes(text)
    assert len(seen) == len(text)
    assert [c.isspace() for c in seen] == [c.isspace() for c in text]


@settings(max_examples=50)
@given(st.lists(MARKED_TEXT, max_size=8))
def test_result_does_not_depend_on_previous_calls(sentences: list[str]) -> None:
    warm = [words(sentence) for sentence in sentences]
    module._CACHE.clear()
    module._FINAL_CACHE.clear()
    assert [words(sentence) for sentence in reversed(sentences)] == warm[::-1]


def test_memory_of_the_chunk_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_CACHED_CHUNKS", 100)
    module._CACHE.clear()
    expected = [word for number in range(1000) for word in (f"w{number}", ",")]
    assert words(" ".join(f"w{number}," for number in range(1001)))[: len(expected)] == expected
    assert len(module._CACHE) <= 100


def test_long_chunk_is_not_cached() -> None:
    words("y" * 5000 + " .")
    assert not any(len(chunk) > 100 for chunk in module._CACHE)


@pytest.mark.parametrize(
    "unit", ["a-", "-a.", "a.b-", "1.1-", "a@", "((", "n'", "\u4e2d", "=", "x/"]
)
def test_time_is_linear_in_the_length_of_a_chunk(unit: str) -> None:
    start = time.process_time()
    words(unit * 100_000)
    for size in range(400, 500):
        words(unit * size + str(size))
    assert time.process_time() - start < 30  # quadratic time would take an hour


def test_empty_and_blank_text_have_no_tokens() -> None:
    assert tokenize("") == tokenize(" \t\n\u3000") == []


def test_offsets_are_correct_for_repeated_words_and_unusual_spaces() -> None:
    assert tokenize(" a  a\ta.\n") == [
        Token("a", 1, 2),
        Token("a", 4, 5),
        Token("a", 6, 7),
        Token(".", 7, 8),
    ]


def test_package_does_not_import_torch() -> None:
    rooms = "tokenize, sentences, lines, vocab"
    code = f"import sys; from elmokit.text import {rooms}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- English conventions; "|" marks a token boundary without a space -----------------------------


@pytest.mark.parametrize(
    "marked",
    [
        # clitics
        "I do|n't|, ca|n't|, wo|n't and did|n't go|.",
        "I DO|N'T know|, and it|\u2019s true that they|\u2019re late|.",
        "It|'s John|'s|; I|'ll|, you|'ve|, we|'re|, she|'d|, I|'m|.",
        "IT|'S the parents|' house|, in the '60s|.",
        "You can|not|. I|'m gon|na|, I wan|na|. He did|nt say so|.",
        "'T|is true|, 't|was so|.",
        "O'Neill|'s coup d'etat in the 1990's|, l'homme|.",
        "Give 'em hell|.",
        # quotes and brackets
        '"|Stop|!|" (|he said|)|.',
        "\u201c|Stop|,|\u201d he said|, \u2018|now|\u2019|.",
        "``|Stop|'' [|sic|] {|x|}|.",
        "'|The dogs|'|, he said|.",
        "\u00ab|Non|\u00bb \u2014 dit|-|il",
        # periods
        "Mr. Smith and Dr. J. Doe of the U.S. Army|, etc.|, met|.",
        "It is|, e.g.|, at 5 p.m. on Jan. 5|.",
        "He lives in the U.S|.",
        'He said "|at 5 p.m|.|"',
        "Acme Inc.|-|based|, No.|5|, St.|George|.",
        "Wait|... what|?! No|!!! Well|\u2014|so|\u2026",
        "It ended|. Then it began|.|Then it ended|.",
        # numbers
        "It cost $|1,000.50 or 5|% of US$|3|M|.",
        "\u20ac|5|, \u00a3|7.50 and \u00a5|100",
        "At 7:30|pm on 11/28/2000|, call 713-853-3989 or 1-800-555-1234|.",
        "From 5|-|10|, in 1914|\u2013|18|, on 9/11|, 3|/|4 of 10|km|.",
        "The 1st|, 2nd and 20th in the 1970s|; .5 and +44|.",
        "It is #|1 and 5|'|10 tall|.",
        # hyphens and slashes
        "A well|-|known state|-|of|-|the|-|art non-human e-mail co-worker",
        "and|/|or|, he|/|she|, w/o|, the anti-American U.S.|-|led plan|--|yes",
        # addresses
        "See http://www.example.com/a-b_(c)?d=1&e=2|. Or (|www.example.org|)|.",
        "Write to john.smith@example.co.uk|, or see example.com/page|.",
        "Open my-file.doc and report-02-05.pdf now|.",
        "Thanks @john for the #hashtag in Node.js|, comp.lang.c|, .com",
        # inside words
        "AT&T|, R&D and snake_case|, but _|emphasis|_ and ***|note|***",
        # emoticons and drawings
        "Nice :) or ;-) or :( or :D or <3|!",
        "----------> ===== ^_^ *~*~*",
    ],
)
def test_tokenization_follows_ewt_conventions(marked: str) -> None:
    assert words(marked.replace("|", "")) == marked.replace("|", " ").split()


@pytest.mark.parametrize("part", ["dev", "test"])
def test_tokens_agree_with_ewt(ewt_sentences: dict[str, list[ewt.Sentence]], part: str) -> None:
    agreement = ewt.f1(
        [
            (set(sentence.tokens), {(token.start, token.end) for token in tokenize(sentence.text)})
            for sentence in ewt_sentences[part]
        ]
    )
    assert agreement > 0.992  # measured: dev .9933, test .9925; most errors are misspellings


# --- other languages and unusual characters ------------------------------------------------------


@pytest.mark.parametrize(
    "marked",
    [
        "\u0410. \u0421. \u041f\u0443\u0448\u043a\u0438\u043d",  # Cyrillic initials
        "\u00bf|Qu\u00e9 hora es|? Ma\u00f1ana|.",
        "col\u00b7lecci\u00f3 n\u00famero",
        # Vowel signs are kept.
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e|\u0964",
        "cafe\u0301|, nai\u0308ve",  # combining accents are kept
        "\u05e6\u05d4\u05f4\u05dc",  # gershayim are kept
        "\u0645\u0631\u062d\u0628\u0627|\u060c \u0643\u064a\u0641|\u061f",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # zero-width non-joiner is kept
        "\uff28\uff45\uff4c\uff4c\uff4f|\uff01",  # fullwidth
        "\uc548\ub155\ud558\uc138\uc694|, \uc138\uacc4",  # runs of Hangul
        "\u6211|\u7231|\u4f60|\u3002|ELMo|\u3002",  # single Han characters
        "\u30ab|\u30bf|\u30ab|\u30ca|\u3068|\u304b\u3099",  # single kana with their marks
        "im Haus dont vous parlez wont cant",  # not an English contraction
    ],
)
def test_other_scripts_are_split_at_whitespace_and_punctuation(marked: str) -> None:
    assert words(marked.replace("|", "")) == marked.replace("|", " ").split()


def test_control_characters_are_separate_tokens() -> None:
    assert words("a\x00b \x07 c\x1b") == ["a", "\x00", "b", "\x07", "c", "\x1b"]


def test_zero_width_space_and_misplaced_byte_order_mark_are_separate_tokens() -> None:
    assert words("\ufeffHello wor\u200bld") == ["\ufeff", "Hello", "wor", "\u200b", "ld"]


def test_other_invisible_characters_are_kept_in_their_word() -> None:
    assert words("co\u00adoperate a\u2060b \u200ex") == ["co\u00adoperate", "a\u2060b", "\u200ex"]


def test_lone_surrogates_are_separate_tokens() -> None:
    assert words("a\ud800b") == ["a", "\ud800", "b"]


def test_emoji_sequences_are_one_token() -> None:
    family, thumb, flag = (
        "\U0001f468\u200d\U0001f469",
        "\U0001f44d\U0001f3fd",
        "\U0001f1eb\U0001f1f7",
    )
    heart = "\u2764\ufe0f"
    assert words(f"{family}{thumb}{heart} {flag}!") == [family, thumb, heart, flag, "!"]
