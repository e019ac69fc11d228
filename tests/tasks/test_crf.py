"""The CRF, compared with enumerating all label sequences."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from elmokit.errors import DataError
from elmokit.tasks.nn.crf import AllowedTransitions, Crf, allowed_transitions, build_tag_set


def score(crf: Crf, emissions: Tensor, labels: tuple[int, ...]) -> Tensor:
    """Sum the scores by definition."""
    total = crf.start[labels[0]] + crf.end[labels[-1]]
    for k, label in enumerate(labels):
        total = total + emissions[k, label]
    for a, b in pairwise(labels):
        total = total + crf.transitions[a, b]
    return total


def is_allowed(rules: AllowedTransitions, labels: tuple[int, ...]) -> bool:
    moves = pairwise(labels)
    return bool(rules.start[labels[0]] and rules.end[labels[-1]]) and all(
        bool(rules.transitions[a, b]) for a, b in moves
    )


def everything(n: int) -> AllowedTransitions:
    return AllowedTransitions(
        *(torch.ones(*shape, dtype=torch.bool) for shape in ((n, n), (n,), (n,)))
    )


def random_rules(n: int) -> AllowedTransitions:
    rules = AllowedTransitions(torch.rand(n, n) < 0.7, torch.rand(n) < 0.8, torch.rand(n) < 0.8)
    rules.transitions.fill_diagonal_(True)
    rules.start[0] = rules.end[0] = True
    return rules


@pytest.mark.parametrize("constrained", [False, True])
def test_partition_likelihood_and_best_path_equal_brute_force(constrained: bool) -> None:
    torch.manual_seed(3)
    n, lengths = 4, [5, 1, 3, 4, 2]
    rules = random_rules(n) if constrained else everything(n)
    crf = Crf(rules).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    emissions = torch.randn(5, 5, n, dtype=torch.float64)
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    found, decoded = crf.log_partition(emissions, mask), crf.decode(emissions, mask)
    for row, length in enumerate(lengths):
        ways = [w for w in product(range(n), repeat=length) if is_allowed(rules, w)]
        scores = torch.stack([score(crf, emissions[row], way) for way in ways])
        assert found[row].item() == pytest.approx(torch.logsumexp(scores, 0).item())
        assert tuple(decoded[row, :length].tolist()) == ways[int(scores.argmax())]
        assert not decoded[row, length:].any()
        gold = torch.zeros(1, 5, dtype=torch.long)
        gold[0, :length] = torch.tensor(ways[-1])
        loss = crf(emissions[row : row + 1], gold, mask[row : row + 1])
        assert loss.item() == pytest.approx((torch.logsumexp(scores, 0) - scores[-1]).item())


def test_padding_has_no_effect_and_gets_no_gradient() -> None:
    torch.manual_seed(0)
    crf = Crf(random_rules(5))
    short = torch.randn(1, 4, 5)
    long = torch.cat([short, torch.full((1, 3, 5), 1e3)], dim=1).requires_grad_()
    labels = torch.zeros(1, 7, dtype=torch.long)
    mask = torch.arange(7)[None] < 4
    loss = crf(long, labels, mask)
    assert torch.allclose(loss, crf(short, labels[:, :4], mask[:, :4]))
    loss.sum().backward()
    assert long.grad is not None
    assert torch.isfinite(long.grad).all()
    assert not long.grad[:, 4:].any()


def test_gradients_are_correct() -> None:
    torch.manual_seed(0)
    crf = Crf(random_rules(3)).double()
    mask = torch.arange(4) < torch.tensor([4, 1, 3])[:, None]
    emissions = torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.zeros(3, 4, dtype=torch.long)
    assert torch.autograd.gradcheck(lambda e: crf(e, labels, mask), (emissions,))


@pytest.mark.parametrize("scheme", ["BIOES", "BIO"])
def test_decoded_tags_satisfy_the_constraints(scheme: str) -> None:
    torch.manual_seed(1)
    labels = build_tag_set(["A", "B"], scheme)
    rules = allowed_transitions(labels, scheme)
    crf = Crf(rules)
    for scale in (1.0, 50.0, 1000.0):  # regardless of the emissions
        lengths = torch.randint(1, 12, (64,))
        mask = torch.arange(12) < lengths[:, None]
        found = crf.decode(torch.randn(64, 12, len(labels)) * scale, mask)
        for row, length in zip(found.tolist(), lengths.tolist(), strict=True):
            assert is_allowed(rules, tuple(row[:length]))


def test_constraints_of_bioes_and_bio() -> None:
    labels = build_tag_set(["A", "B"], "BIOES")
    rules = allowed_transitions(labels, "BIOES")
    at = {label: i for i, label in enumerate(labels)}

    def may(a: str, b: str) -> bool:
        return bool(rules.transitions[at[a], at[b]])

    assert may("O", "B-A")
    assert may("B-A", "E-A")
    assert may("S-A", "S-A")
    assert may("E-A", "B-A")
    for a, b in (("O", "I-A"), ("B-A", "O"), ("B-A", "E-B"), ("S-A", "I-A"), ("B-A", "S-A")):
        assert not may(a, b)
    assert not rules.end[at["B-A"]]
    assert not rules.start[at["E-A"]]
    labels = build_tag_set(["A"], "BIO")
    rules = allowed_transitions(labels, "BIO")
    assert labels == ["O", "B-A", "I-A"]
    assert rules.transitions.tolist() == [[True, True, False], [True] * 3, [True] * 3]
    assert rules.start.tolist() == [True, True, False]
    assert rules.end.all()


def test_training_learns_the_transitions() -> None:
    torch.manual_seed(0)
    crf = Crf(everything(2))
    emissions = torch.zeros(1, 6, 2)
    labels = torch.tensor([[0, 1, 0, 1, 0, 1]])
    mask = torch.ones(1, 6, dtype=torch.bool)
    optimizer = torch.optim.Adam(crf.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        crf(emissions, labels, mask).sum().backward()
        optimizer.step()
    assert torch.equal(crf.decode(emissions, mask), labels)


def test_too_many_labels_are_an_error() -> None:
    with pytest.raises(DataError):
        build_tag_set([str(i) for i in range(1000)], "BIOES")
