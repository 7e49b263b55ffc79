"""Classifiers as folders for the Hugging Face Hub: saved, described and loaded, all offline."""

import json
import pickle
from types import SimpleNamespace

import pytest
import torch
from test_package import imported
from training.processes import torchlace

import torchlace as tl
from torchlace.data import Prepare, load_data
from torchlace.hub import Pretrained, from_pretrained, push_to_hub, save_pretrained
from torchlace.runs import RunError, load_run
from torchlace.training import TrainConfig, train

IMAGES, TARGETS = torch.randn(40, 1, 8, 8), torch.arange(40) % 5
FILES = ["README.md", "config.json", "model.safetensors"]


def made(head="lace", **options):
    """A classifier whose weights and statistics are not the first ones."""
    torch.manual_seed(0)
    model = tl.Classifier("small-cnn", head, 5, channels=1, **options)
    for _ in range(3):
        model.loss(IMAGES, TARGETS).backward()
    return model.calibrate(IMAGES, TARGETS).eval()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "digits"
    train(TrainConfig(data="digits", epochs=2, batch_size=128), path)
    return path


@pytest.mark.parametrize("head", tl.heads.names())
def test_what_is_loaded_is_what_was_saved(head, tmp_path):
    model = made(head, embedding=12)
    folder = save_pretrained(model, tmp_path / "saved")
    assert sorted(each.name for each in folder.iterdir()) == FILES
    loaded = from_pretrained(folder).model
    assert not loaded.training
    assert torch.equal(loaded(IMAGES), model(IMAGES))
    assert torch.equal(loaded.probabilities(IMAGES), model.probabilities(IMAGES))
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(loaded.state_dict()[n], v) for n, v in model.state_dict().items())
    loaded.train().loss(IMAGES, TARGETS).backward()  # it can be trained on


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_precision_and_options_are_kept(dtype, tmp_path):
    options = {"background": "low-rank", "background_options": {"rank": 4}, "device": "cpu"}
    model = made(head_options=options).to(dtype)
    images = IMAGES.to(dtype)
    loaded = from_pretrained(save_pretrained(model, tmp_path / "saved")).model
    assert loaded.head.background.rank == 4
    assert torch.equal(loaded(images), model(images))


def test_names_and_preparation_go_along(tmp_path):
    prepare = Prepare([0.4], [0.2], resize=12, crop=8)
    given = Pretrained(made(), tuple("abcdé"), prepare, (10, 9))
    folder = save_pretrained(given, tmp_path / "letters", license="mit")
    again = from_pretrained(save_pretrained(from_pretrained(folder), tmp_path / "again"))
    assert (again.class_names, again.size) == (tuple("abcdé"), (10, 9))
    raw = torch.randint(256, (3, 1, 10, 9), dtype=torch.uint8)
    assert torch.equal(again.prepare(raw), prepare(raw))
    card = (folder / "README.md").read_text()
    assert card.startswith('---\nlibrary_name: "torchlace"\n')
    assert 'license: "mit"' in card
    assert 'from_pretrained("letters")' in card
    assert "license" not in (tmp_path / "again" / "README.md").read_text()


def test_a_run_and_its_card(run, tmp_path):
    folder = tmp_path / "digits-lace"
    done = torchlace("export", run, "--hub", folder, folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert f"hf upload NAME/digits-lace {folder}" in done.out
    loaded, trained = from_pretrained(folder), load_run(run, "cpu")
    images = load_data("digits").test.images
    with torch.no_grad():
        found = loaded.model.probabilities(loaded.prepare(images))
        assert torch.equal(found, trained.model.probabilities(trained.prepare(images)))
    assert (loaded.class_names, loaded.size) == (tuple("0123456789"), (8, 8))
    card = (folder / "README.md").read_text()
    accuracy = trained.run.result()["test_accuracy"]
    assert f"| Accuracy,\u00a0% | {accuracy:.2f} |" in card
    assert "Silhouette" not in card
    assert "Trained on `digits` for 2 epochs" in card
    assert str(run.parent) not in card
    torchlace("evaluate", run, folder=tmp_path)
    assert (
        "| Silhouette, whitened |" in save_pretrained(run, folder).joinpath("README.md").read_text()
    )


def test_the_card_s_front_is_yaml_that_the_hub_reads(run, tmp_path):
    cards = pytest.importorskip("huggingface_hub")
    folder = save_pretrained(run, tmp_path / "saved", license="apache-2.0")
    data = cards.ModelCard.load(folder / "README.md").data
    assert (data.library_name, data.license) == ("torchlace", "apache-2.0")
    assert data.tags == ["torchlace", "image-classification", "lace"]


def test_upload_and_download(monkeypatch, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    model, asked = made(), {}

    class Api:
        def __init__(self, token):
            asked["token"] = token

        def create_repo(self, repo, private, exist_ok):
            asked.update(repo=repo, private=private, exist_ok=exist_ok)
            return SimpleNamespace(repo_id=repo)

        def upload_folder(self, repo_id, folder_path, commit_message):
            folder_path.rename(tmp_path / "there")
            return SimpleNamespace(commit_url=f"commit of {repo_id}")

    def download(name, **options):
        asked.update(name=name, **options)
        return str(tmp_path / "there")

    monkeypatch.setattr(hub, "HfApi", Api)
    monkeypatch.setattr(hub, "snapshot_download", download)
    assert push_to_hub(model, "me/flowers", private=True, token="t") == "commit of me/flowers"
    assert asked == {"token": "t", "repo": "me/flowers", "private": True, "exist_ok": True}
    loaded = from_pretrained("me/flowers", revision="v1")
    assert (asked["name"], asked["revision"]) == ("me/flowers", "v1")
    assert asked["allow_patterns"] == ["config.json", "model.safetensors"]
    assert torch.equal(loaded.model(IMAGES), model(IMAGES))
    assert 'from_pretrained("me/flowers")' in (tmp_path / "there" / "README.md").read_text()


def test_what_can_t_be_saved_is_a_sentence(tmp_path):
    own = tl.Classifier(made().backbone, "lace", 5)
    with pytest.raises(ValueError, match=r"is an object, which a file can't name: register"):
        save_pretrained(own, tmp_path / "a")
    background = made(head_options={"background": tl.backgrounds.Total(64)})
    with pytest.raises(ValueError, match="options of this classifier can't be written to a file"):
        save_pretrained(background, tmp_path / "a")
    with pytest.raises(ValueError, match="2 class_names were given for 5"):
        save_pretrained(Pretrained(made(), ("a", "b")), tmp_path / "a")
    with pytest.raises(RunError, match="holds no run"):
        save_pretrained(tmp_path / "nowhere", tmp_path / "a")
    assert not (tmp_path / "a").exists()
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(ValueError, match=r"holds other files \(README.md\): name a new folder"):
        save_pretrained(made(), tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(ValueError, match="holds other files"):
        save_pretrained(made(), tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


def changed(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    config["model"] |= values.pop("model", {})
    (folder / "config.json").write_text(json.dumps({**config, **values}))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"library": "other"}, "its config.json is not one of torchlace"),
        ({"model": {"head": "mine"}}, "unknown head 'mine'"),
        ({"model": {"backbone": "mine"}}, "unknown backbone 'mine'"),
        ({"model": {"num_classes": 10**12}}, "it has 1000000000000 classes, 0 names and weights"),
        ({"model": {"embedding": 3}}, "loading state_dict"),
        ({"model": {"odd": 1}}, "odd"),
        ({"preparation": {"mean": [0.5], "std": [0]}}, "std positive"),
    ],
)
def test_what_can_t_be_loaded_is_a_sentence(values, said, tmp_path):
    folder = save_pretrained(made(), tmp_path / "saved")
    changed(folder, **values)
    with pytest.raises(ValueError, match=said) as caught:
        from_pretrained(folder)
    assert str(caught.value).startswith(f"{folder} can't be loaded as a classifier of torchlace: ")


def test_no_pickle_is_read_and_no_weights_are_fetched(tmp_path, monkeypatch):
    folder = save_pretrained(made(), tmp_path / "saved")
    changed(folder, model={"pretrained": True})
    assert from_pretrained(folder).model.made_from["pretrained"] is False
    (folder / "model.safetensors").write_bytes(pickle.dumps({"head.weight": 1}))
    with pytest.raises(ValueError, match=r"its model.safetensors can't be read"):
        from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="can't be loaded"):
        from_pretrained(folder)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        from_pretrained(tmp_path / "nowhere")


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install 'torchlace\[hub\]'"):
        from_pretrained("me/flowers")


def test_only_who_asks_for_it_loads_the_hub():
    assert "huggingface_hub" not in imported("import torchlace.hub, torchlace.models")
