import copy

import pytest
import torch
from heads import reference
from heads.cases import (
    batch,
    cases_where,
    every_case,
    gradients,
    is_classwise,
    make,
    move,
    moved,
    needs_targets,
)
from torch.testing import assert_close

from torchlace.heads import LACE, AdaCos

EXACT = {"rtol": 1e-9, "atol": 1e-9}


@every_case
def test_scores_in_evaluation(case):
    head = make(case)
    history = move(head)
    x, _ = batch(seed=90)
    assert_close(head.eval()(x), reference.logits(head, x, history), **EXACT)


@every_case
def test_loss_in_evaluation(case):
    head = make(case)
    history = move(head)
    x, y = batch(17, seed=90, ignored=-100)
    assert_close(head.eval().loss(x, y), reference.loss(head, x, y, history), **EXACT)


@every_case
def test_loss_and_gradients_in_training(case):
    head = make(case)
    history = move(head)
    x, y = batch(seed=91, ignored=-100)
    x.requires_grad_()
    twin = copy.deepcopy(head)
    for part in twin.modules():
        if isinstance(part, AdaCos):
            part.current_scale.fill_(reference.next_scale(part, x, y))
    found = head.loss(x, y)
    for part, counterpart in zip(twin.modules(), head.modules(), strict=True):
        if isinstance(part, LACE) and part.signature_space == "whitened":
            part.background.load_state_dict(counterpart.background.state_dict())
    expected = reference.loss(twin, x, y, [*history, (x, y)])
    assert_close(found, expected, **EXACT)
    assert_close(gradients(found, head, x), gradients(expected, twin, x), **EXACT)


@cases_where(lambda head: not needs_targets(head))
def test_scores_in_training(case):
    head = make(case)
    history = move(head)
    x, y = batch(seed=92)
    scores = head(x)
    assert_close(scores, reference.logits(head, x, [*history, (x, y)]), **EXACT)


@cases_where(lambda head: isinstance(head, LACE) and not is_classwise(head))
def test_scores_are_cosines_of_whitened_features_and_signatures(case):
    head = moved(case)
    x, _ = batch(seed=93)
    z, s = head.whiten(x), head.whitened_signatures()
    cosines = torch.nn.functional.cosine_similarity(z[:, None], s[None], dim=-1)
    bias = 0.0 if head.bias is None else head.bias
    assert_close(head(x), head.scale * cosines + bias, **EXACT)


@cases_where(lambda head: isinstance(head, LACE) and is_classwise(head))
def test_whitening_that_differs_between_classes_says_so(case):
    head = moved(case)
    if head.background.shared_whitening:
        assert head.whiten(batch()[0]).shape == (16, head.background.out_features)
    else:
        with pytest.raises(ValueError, match="differently for every class"):
            head.whiten(batch()[0])
