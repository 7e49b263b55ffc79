"""The parts of a page: grouping, sentences, examples, sheets, payload, tables."""

import base64
import io
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import binomtest

from torchlace.data import MemoryImages
from torchlace.evaluation.scores import confusions
from torchlace.experiments.pictures import encode
from torchlace.report.page import _first
from torchlace.report.page.drawing import HORIZON, UNIT, best_view, class_centres, draw_ball
from torchlace.report.page.examples import find_examples, make_sheet
from torchlace.report.page.gather import Collection, Shown, Spread, group_runs, short_names
from torchlace.report.page.hero import make_hero
from torchlace.report.page.tables import classes_table, comparison_table, settings_tables
from torchlace.training import TrainConfig

NAMES = ["cat", "dog", "owl"]
LABELS = torch.arange(300) % 3


def run(name, wrong=0, first=0, **settings):
    """A run that takes ``wrong`` of the dogs for owls, from the ``first`` on."""
    chosen = LABELS.clone()
    dogs = (LABELS == 1).nonzero().flatten()[first : first + wrong]
    chosen[dogs] = 2
    logits = 4 * torch.nn.functional.one_hot(chosen, 3).float()
    confusion = np.zeros((3, 3), int)
    np.add.at(confusion, (LABELS.numpy(), chosen.numpy()), 1)
    right = (chosen == LABELS).double()
    scores = {
        "accuracy": 100 * right.mean().item(),
        "confusion": confusion.tolist(),
        "class_accuracy": [100.0, 100.0 - wrong, None],
    }
    inspection = SimpleNamespace(
        config=TrainConfig(**settings),
        class_names=NAMES,
        labels=LABELS,
        logits=logits,
        temperature=0.5,
        scores=scores,
        figures=scores,
    )
    return Shown(name, inspection, {})


def sentences(*runs):
    return hero(*runs).sentences


def test_seeds_and_machines_are_grouped_and_settings_are_not():
    runs = [
        run("a", 3, seed=0, device="cpu"),
        run("b", 5, seed=1, workers=7),
        run("c", 1, seed=0, lr=0.01),
        run("d", 9, head="softmax", backbone="small-cnn"),
        run("e", 9, head="softmax", data="elsewhere.npz", backbone="small-cnn"),
    ]
    groups = group_runs(runs)
    assert [[each.name for each in group.runs] for group in groups] == [
        ["c"],
        ["a", "b"],
        ["d", "e"],
    ]
    assert [group.label for group in groups] == [
        "lace, lr 0.01",
        "lace, lr 0.001",
        "softmax, lr 0.001",
    ]


def test_a_run_has_its_own_name_where_settings_would_be_a_longer_one():
    many = {"lr": 0.01, "epochs": 7, "batch_size": 32, "optimizer": "muon", "crop": "shift"}
    groups = group_runs([run("a", 3), run("b", 5, **many), run("c", 2, seed=1, **many)])
    assert groups[0].label == "a"
    assert "optimizer muon" in groups[1].label


def test_options_of_the_head_tell_groups_apart():
    groups = group_runs([run("a", 1, head_options={"scale": 3.0}), run("b", 2)])
    assert [group.label for group in groups] == ["lace, scale 3.0", "lace"]


def test_spread_is_the_mean_and_the_deviation_of_a_sample():
    values = [98.1, 98.4, 99.3]
    text = Spread(values).text(3)
    assert text == f"{np.mean(values):.3f}\xa0±\xa0{np.std(values, ddof=1):.3f}"
    assert Spread([5.0]).text(1) == "5.0"


def test_one_run_is_summed_up():
    first, *rest = sentences(run("a", 30))
    assert first == "lace is right on 90.0\xa0% of 300\xa0test images of animals."
    assert rest == ["The most frequent mistake of a: dog taken for owl, 30\xa0times."]
    assert sentences(run("a"))[1] == "a makes no mistake."


def test_two_runs_are_compared_on_the_same_images():
    first, chance, *_ = sentences(run("a", 6), run("b", 30, head="softmax"))
    assert first.endswith("animals, 8.0\xa0points more than softmax (90.0\xa0%).")
    assert chance.startswith("On 24\xa0images only one of the two is right, lace on 24: ")
    assert "hardly chance (p\xa0<\xa00.001)" in chance
    _, chance, *_ = sentences(run("a", 6), run("b", 8, first=4, head="softmax"))
    p = binomtest(6, 10).pvalue
    assert chance == (
        "On 10\xa0images only one of the two is right, lace on 6: that can be chance "
        f"(p\xa0=\xa0{p:.2g})."
    )


def test_a_tie_is_called_one():
    first, chance, *_ = sentences(run("a", 6), run("b", 6, head="softmax"))
    assert "as often as softmax (98.0\xa0%)" in first
    assert chance == "They are right on the very same images."


def test_seeds_speak_for_their_scatter():
    lace = [run(f"a{n}", wrong, seed=n) for n, wrong in enumerate((6, 7, 8))]
    worse = [run(f"b{n}", wrong, seed=n, head="softmax") for n, wrong in enumerate((30, 31, 33))]
    close = [run(f"b{n}", wrong, seed=n, head="softmax") for n, wrong in enumerate((2, 8, 14))]
    first, chance, *_ = sentences(*lace, *worse)
    assert "97.7\xa0±\xa00.3\xa0% of 300\xa0test images of animals (mean of 3\xa0runs)" in first
    assert chance == "That is more than their runs scatter."
    assert sentences(*lace, *close)[1] == "Their runs scatter as much: take it for a tie."
    assert "With one run of softmax" in sentences(*lace, worse[0])[1]


def test_the_others_are_named():
    text = " ".join(sentences(run("a"), run("b", 9, head="amc"), run("c", 30, head="softmax")))
    assert "Behind them: softmax, 90.0\xa0%." in text


def test_confusions_are_the_largest_off_the_diagonal():
    counts = np.random.default_rng(0).integers(0, 99, (6, 6))
    found = confusions(counts, 5)
    off = counts[~np.eye(6, dtype=bool)]
    assert [count for *_, count in found] == sorted(off.tolist(), reverse=True)[:5]
    assert all(i != j and counts[i, j] == count for i, j, count in found)
    assert confusions(np.eye(4), 3) == []


def test_examples_are_the_most_confident_mistakes_and_the_least_certain_images():
    generator = torch.Generator().manual_seed(0)
    shown = run("a")
    found = shown.inspection
    found.logits = 3 * torch.randn(300, 3, generator=generator)
    chosen = found.logits.argmax(1)
    confusion = np.zeros((3, 3), int)
    np.add.at(confusion, (LABELS.numpy(), chosen.numpy()), 1)
    found.scores["confusion"] = confusion.tolist()
    picked = find_examples(found)
    chances = torch.softmax(found.logits.double() / found.temperature, 1).numpy()
    top = chances.max(1)
    mistakes = np.flatnonzero(chosen.numpy() != LABELS.numpy())
    assert [each.index for each in picked.worst] == mistakes[np.argsort(-top[mistakes])][
        :12
    ].tolist()
    second, first = np.sort(chances, 1)[:, -2:].T
    assert [each.index for each in picked.uncertain] == np.argsort(first - second)[:12].tolist()
    worst = picked.worst[0]
    assert worst.true == NAMES[LABELS[worst.index]]
    assert worst.likeliest[0] == NAMES[chosen[worst.index]] != worst.true
    assert worst.chances[0] == pytest.approx(100 * top[worst.index])
    for pair in picked.pairs:
        assert {each.true for each in pair.examples} == {pair.true}
        assert {each.likeliest[0] for each in pair.examples} == {pair.taken}
        assert pair.share == pytest.approx(pair.count)


def test_few_uncertain_images_are_not_filled_up_and_one_class_is_never_uncertain():
    found = run("a", 3).inspection
    assert find_examples(found).uncertain == []
    found.logits = 100 * torch.nn.functional.one_hot(LABELS, 3).float()
    found.logits[[4, 7]] = torch.tensor([[1.0, 1.05, 0.0], [0.0, 1.0, 1.0]])
    assert [each.index for each in find_examples(found).uncertain] == [7, 4]
    found.logits[4] = torch.tensor([1.0, 1.3, 0.0])  # at temperature 0.5: 62 % against 34 %
    assert [each.index for each in find_examples(found).uncertain] == [7]
    found.logits = torch.zeros(300, 1)
    found.labels = torch.zeros(300, dtype=torch.long)
    found.scores["confusion"] = [[300]]
    assert find_examples(found).indices == set()


def test_the_best_and_lace_are_open_first():
    heads = ("center", "amc", "arcface", "cosface", "lace", "lace-learned")
    runs = [run(head, wrong, head=head) for wrong, head in enumerate(heads)]
    assert _first(group_runs(runs)) == {"center", "lace", "lace-learned", "amc"}
    assert _first(group_runs(runs[:2])) == {"center", "amc"}
    softmax = run("softmax", 30, head="softmax")
    assert _first(group_runs([*runs, softmax])) == {"softmax", "center", "lace", "lace-learned"}
    seeds = [run(f"s{seed}", seed, seed=seed) for seed in range(6)]
    assert _first(group_runs(seeds)) == {"s0", "s1", "s2", "s3"}


@pytest.mark.parametrize("seed", range(5))
def test_the_first_view_shows_more_classes_than_views_at_random(seed):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(10, 3))
    labels = rng.choice(10, 400, p=np.arange(1, 11) / 55)
    points = centres[labels] + 0.1 * rng.normal(size=(400, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)

    def shown(eye):
        return np.mean([(points[labels == n] @ eye > 0.5).mean() for n in np.unique(labels)])

    eye = np.array(best_view(points, labels))
    assert np.linalg.norm(eye) == pytest.approx(1, abs=2e-3)
    others = rng.normal(size=(200, 3))
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    assert shown(eye) >= np.quantile([shown(each) for each in others], 0.85)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_view_shows_more_centres_of_classes(seed):
    rng = np.random.default_rng(seed)
    labels = np.arange(200) % 10
    points = rng.normal(size=(10, 3))[labels] + 0.2 * rng.normal(size=(200, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    centres = np.stack([points[labels == n].mean(axis=0) for n in range(10)])
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    np.testing.assert_allclose(class_centres(points, labels), centres, atol=1e-5)
    others = rng.normal(size=(3000, 3))
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    others = others[np.abs(others[:, 2]) < 0.85]  # the poles are left out
    shown = (centres @ np.array(best_view(points, labels)) > HORIZON).sum()
    # A view at random may be a hair better placed than the nearest one that is tried.
    assert shown >= (centres @ others.T > HORIZON + 0.02).sum(axis=0).max()


def test_a_drawn_sphere_has_every_point_once_and_names_as_text():
    points = np.eye(3).repeat(4, axis=0)
    names = ["<b>", "b" * 30, "c"]
    drawn = draw_ball(points, np.eye(3), np.arange(12) // 4, names, [("#111111", "#eeeeee")] * 3)
    assert drawn.count("h0") == 12
    assert "&lt;b&gt;" in drawn
    assert "<b>" not in drawn
    assert f">{'b' * 15}…<" in drawn


def hero(*runs):
    return make_hero(Collection("animals", list(runs), None), group_runs(runs), [])


def test_the_first_row_says_who_leads_softmax_with_an_interval_and_all_seeds():
    lace = [run(f"a{n}", 6 + n, seed=n) for n in range(3)]
    others = [run("b", 20, head="amc"), run("c", 30, head="softmax"), run("d", 31, head="softmax")]
    found = hero(*lace, *others)
    assert found.headline == "lace is right most often"
    right, lead, trained = found.facts
    assert (right.name, right.value) == ("Right on", "97.7\xa0±\xa00.3\xa0%")
    assert "300\xa0test images" in right.about
    assert (lead.name, lead.value) == ("Ahead of softmax by", "7.8\xa0points")
    low, high = map(float, re.search(r"(\+[\d.]+) to (\+[\d.]+)", lead.about).groups())
    assert 3 < low < 7.8 < high < 12
    assert (trained.value, trained.about[:16]) == ("3\xa0times", "seeds 0, 1 and 2")
    assert found.run.name == "a0"


def test_the_first_row_calls_a_tie_a_tie():
    found = hero(run("a", 6), run("b", 8, first=4, head="softmax"))
    assert found.headline == "A tie: lace and softmax"
    assert "call it a tie" in found.facts[1].about
    assert found.facts[2].value == "once"
    best = hero(run("a", 6, head="softmax"), run("b", 60, head="softmax", lr=0.5), run("c", 40))
    assert best.facts[1].name == "Ahead of lace, lr 0.001 by"
    assert hero(run("a", 6)).headline == "lace"


def decode(uri):
    head, _, content = uri.partition(",")
    assert head == "data:image/webp;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_sheet_holds_every_image_at_its_place(channels):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (40, channels, 8, 8), dtype=torch.uint8, generator=generator)
    images = MemoryImages(pixels, torch.zeros(40, dtype=torch.int64))
    indices = [3, 5, 39, 0, 17]
    sheet = make_sheet(images, indices)
    assert (sheet.cell, sheet.columns, sheet.rows, sheet.shown) == (8, 3, 2, 72)
    picture = decode(sheet.uri)
    for index in indices:
        left, top = (-int(v.removesuffix("px")) // 72 for v in sheet.position(index).split())
        cell = picture[8 * top : 8 * top + 8, 8 * left : 8 * left + 8]
        expected = pixels[index].permute(1, 2, 0).expand(-1, -1, 3).numpy()
        np.testing.assert_array_equal(cell[..., :3], expected)


def test_many_or_large_images_make_no_larger_sheet():
    images = MemoryImages(torch.zeros(5000, 1, 64, 48, dtype=torch.uint8), torch.zeros(5000).long())
    sheet = make_sheet(images, range(5000))
    assert sheet.cell == 32
    height, width = decode(sheet.uri).shape[:2]
    assert width * height < 5.4e6
    assert make_sheet(images, range(10)).cell == 64


def test_packed_numbers_come_back_as_the_page_reads_them():
    points = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    back = np.frombuffer(base64.b64decode(encode(np.rint(UNIT * points), "<i2")), "<i2") / UNIT
    assert np.abs(back.reshape(50, 3) - points).max() < 2e-5


def test_names_are_as_short_as_tells_runs_apart(tmp_path):
    paths = [tmp_path / "a" / "x", tmp_path / "b" / "x", tmp_path / "a" / "y"]
    assert list(short_names(paths)) == ["a/x", "b/x", "a/y"]
    assert list(short_names([*paths[::2], tmp_path / "b" / ".." / "a" / "x"])) == ["x", "y"]


def test_a_class_without_images_has_no_accuracy():
    table = classes_table(Collection("animals", [run("a", 4)], None))
    assert [row[2].text for row in table.rows] == ["100.0", "96.0", "–"]
    assert [row[1].value for row in table.rows] == [100, 100, 100]


def test_one_run_alone_is_not_called_a_comparison():
    captions = []
    for runs in ([run("a")], [run("a"), run("b", head="softmax")], [run("a"), run("b", seed=1)]):
        groups = group_runs(runs)
        captions.append(comparison_table(Collection("animals", runs, None), groups).caption)
    spread = ": mean ± standard deviation over their runs"
    assert captions == ["Figures of merit", "Settings compared", f"Figures of merit{spread}"]


def test_settings_are_split_into_those_that_differ_and_the_rest():
    runs = [run("a", lr=0.01), run("b", seed=3)]
    differing, common = settings_tables(runs)
    assert [[cell.text for cell in row] for row in differing.rows] == [
        ["lr", "0.01", "0.001"],
        ["seed", "0", "3"],
    ]
    assert len(differing.rows) + len(common.rows) == len(TrainConfig().as_dict())
    assert json.dumps([cell.value for row in common.rows for cell in row])


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a-lace-x-s0", "a-lace-learned-x-s0"], ["lace", "lace-learned"]),
        (["a-lace-0", "a-lace-1"], ["lace-0", "lace-1"]),
        (["lace-0", "softmax-1"], ["lace-0", "softmax-1"]),
        (["only-one"], ["only-one"]),
        (["x", "x-y"], ["x", "x-y"]),
    ],
)
def test_names_lose_what_all_of_them_share(names, shown, tmp_path):
    found = short_names(tmp_path / name for name in names)
    assert list(found) == shown
    assert [path.name for path in found.values()] == names
