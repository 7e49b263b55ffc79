import copy
import io
import pickle

import pytest
import torch
from heads.cases import CLASSES, WIDTH, batch, crossed, each_path, every_case, make, move, moved
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch.testing import assert_close

SAME = {"rtol": 0, "atol": 0}


def through_state_dict(head, case):
    return loaded(case, head.state_dict())


def through_torch_save(head, case):
    file = io.BytesIO()
    torch.save(head.state_dict(), file)
    file.seek(0)
    return loaded(case, torch.load(file, weights_only=True))


def through_safetensors(head, case):
    return loaded(case, load_safetensors(save_safetensors(head.state_dict())))


def through_pickle(head, case):
    return pickle.loads(pickle.dumps(head))


def through_deepcopy(head, case):
    return copy.deepcopy(head)


def onto_meta(head, case):
    other = case.build(WIDTH, CLASSES, dtype=torch.float64, device="meta")
    other.load_state_dict(head.state_dict(), assign=True)
    return other


def loaded(case, state):
    other = make(case, seed=99)
    other.load_state_dict(state)
    return other


ROUTES = [
    through_torch_save,
    through_state_dict,
    through_safetensors,
    through_pickle,
    through_deepcopy,
    onto_meta,
]


@crossed("route", ROUTES)
def test_scores_and_training_go_on_as_before(case, route):
    head = make(case)
    move(head, 7)
    head.calibrate(*batch(32, seed=50))
    twin = route(copy.deepcopy(head), case).train()
    x, _ = batch(seed=60)
    assert_close(twin.eval()(x), head.eval()(x), **SAME)
    assert_close(twin.probabilities(x), head.probabilities(x), **SAME)
    for model in (head, twin):
        model.requires_grad_(True)
        move(model, 5, first=7)
    assert_close(twin.eval()(x), head.eval()(x), **SAME)
    assert_close(dict(twin.state_dict()), dict(head.state_dict()), **SAME)


@each_path
def test_copies_share_nothing(case):
    head = make(case)
    move(head, 2)
    before = copy.deepcopy(head.state_dict())
    move(copy.deepcopy(head), 3)
    move(pickle.loads(pickle.dumps(head)), 3)
    assert_close(dict(head.state_dict()), dict(before), **SAME)


@each_path
def test_scalars_of_earlier_states_are_loaded(case):
    head = make(case)
    move(head, 3)
    state = dict(head.state_dict())
    short = {name: value for name, value in state.items() if value.shape == (1,)}
    loaded = make(case)
    loaded.load_state_dict({**state, **{name: value[0] for name, value in short.items()}})
    assert_close(dict(loaded.state_dict()), state, **SAME)


@every_case
def test_no_scalar_moves_in_training(case):
    """Torch 2.11 compiles in fp64 as if scalars stood still."""
    head = make(case)
    before = copy.deepcopy(dict(head.named_buffers()))
    move(head, 3)
    assert all(
        torch.equal(buffer, before[name])
        for name, buffer in head.named_buffers()
        if not buffer.dim()
    )


@each_path
def test_state_of_another_shape_is_refused(case):
    with pytest.raises(RuntimeError, match="size mismatch"):
        make(case, classes=CLASSES + 1).load_state_dict(make(case).state_dict())


@every_case
def test_meta_device(case):
    head = case.build(WIDTH, CLASSES, device="meta")
    assert {t.device.type for t in (*head.parameters(), *head.buffers())} == {"meta"}
    x, y = torch.zeros(4, WIDTH, device="meta"), torch.zeros(4, dtype=torch.long, device="meta")
    assert head.eval()(x).shape == (4, CLASSES)
    assert head.train().loss(x, y).device.type == "meta"


@each_path
def test_built_inside_a_meta_context(case):
    with torch.device("meta"):
        head = case.build(WIDTH, CLASSES)
    assert {t.device.type for t in (*head.parameters(), *head.buffers())} == {"meta"}


@each_path
def test_deterministic_under_a_seed(case):
    first, second = moved(case, seed=3), moved(case, seed=3)
    assert_close(dict(first.state_dict()), dict(second.state_dict()), **SAME)
    assert not torch.equal(first(batch()[0]), moved(case, seed=4)(batch()[0]))


@each_path
def test_evaluation_changes_no_state(case):
    head = moved(case)
    before = copy.deepcopy(head.state_dict())
    x, y = batch(seed=70)
    head(x), head.predict(x), head.probabilities(x), head.loss(x, y)
    head.loss(x, y, weight=torch.ones(CLASSES), reduction="none")
    assert_close(dict(head.state_dict()), dict(before), **SAME)
