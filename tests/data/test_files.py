import csv
import io
import os

import numpy as np
import pytest
import torch
from data import genuine
from PIL import Image
from torch.utils.data import DataLoader

from torchlace.data import (
    BadImagesError,
    DataError,
    FileImages,
    MemoryImages,
    channel_statistics,
    check_data,
    decode_image,
    image_files,
    load_data,
)
from torchlace.data import decode as decoding
from torchlace.data.listing import list_csv


def saved(tmp_path, picture, name="a.png", **options):
    picture.save(tmp_path / name, **options)
    return tmp_path / name


def test_kinds_of_pixels(tmp_path):
    grey = genuine.images(1, 6, 5)[0]
    path = saved(tmp_path, Image.fromarray(grey))
    assert torch.equal(decode_image(path, channels=1)[0], torch.from_numpy(grey))
    assert torch.equal(decode_image(path, channels=3)[2], torch.from_numpy(grey))
    colour = genuine.images(1, 6, 5, 3)[0]
    path = saved(tmp_path, Image.fromarray(colour))
    assert torch.equal(decode_image(path, channels=3), torch.from_numpy(colour).permute(2, 0, 1))
    luma = np.asarray(Image.fromarray(colour).convert("L"))
    assert torch.equal(decode_image(path, channels=1)[0], torch.from_numpy(luma.copy()))


def test_transparent_parts_are_white(tmp_path):
    rgba = np.zeros((2, 2, 4), np.uint8)
    rgba[0, :, 3] = 255
    out = decode_image(saved(tmp_path, Image.fromarray(rgba)), channels=3)
    assert out[:, 0].eq(0).all()
    assert out[:, 1].eq(255).all()
    faint = Image.fromarray(np.array([[[0, 128]]], np.uint8), "LA")
    assert decode_image(saved(tmp_path, faint), channels=1).item() == 127
    palette = Image.new("P", (2, 1))
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.putpixel((1, 0), 1)
    path = saved(tmp_path, palette)
    assert decode_image(path, channels=3)[:, 0].T.tolist() == [[255, 0, 0], [0, 0, 255]]
    path = saved(tmp_path, palette, transparency=1)
    assert decode_image(path, channels=3)[:, 0].T.tolist() == [[255, 0, 0], [255, 255, 255]]


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_sixteen_bits_are_scaled_to_eight(tmp_path, name):
    deep = Image.fromarray(np.array([[0, 256, 32768, 65535]], np.uint16))
    assert decode_image(saved(tmp_path, deep, name), channels=1).flatten().tolist() == [
        0,
        1,
        128,
        255,
    ]


def test_other_modes(tmp_path):
    bits = Image.fromarray(np.array([[0, 255]], np.uint8)).convert("1")
    assert decode_image(saved(tmp_path, bits), channels=1).flatten().tolist() == [0, 255]
    cmyk = Image.new("CMYK", (2, 2), (0, 0, 0, 255))
    assert decode_image(saved(tmp_path, cmyk, "a.tif"), channels=3).max() == 0
    for pixels in (np.ones((2, 2), np.float32), np.full((2, 2), 70000, np.int32)):
        path = saved(tmp_path, Image.fromarray(pixels), "b.tif")
        with pytest.raises(BadImagesError, match="convert it to 8 or 16 bits"):
            decode_image(path, channels=1)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_camera_s_orientation_is_applied(tmp_path, orientation):
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path, Image.fromarray(pixels), exif=exif)
    out = decode_image(path, channels=3)
    expected = {
        1: pixels,
        2: pixels[:, ::-1],
        3: pixels[::-1, ::-1],
        4: pixels[::-1],
        5: pixels.transpose(1, 0, 2),
        6: np.rot90(pixels, -1),
        7: np.rot90(pixels, 2).transpose(1, 0, 2),
        8: np.rot90(pixels),
    }[orientation]
    np.testing.assert_array_equal(out.permute(1, 2, 0).numpy(), expected)
    header = decoding.read_header(path)
    assert (header.height, header.width) == expected.shape[:2]


def test_resizing_covers_and_crops_the_centre(tmp_path):
    pixels = np.zeros((40, 80, 3), np.uint8)
    pixels[:, 20:60] = 200
    path = saved(tmp_path, Image.fromarray(pixels))
    out = decode_image(path, channels=3, size=(20, 20))
    assert out.shape == (3, 20, 20)
    assert out[..., 1:-1].float().mean() > 199
    assert decode_image(path, channels=3, size=(100, 30)).shape == (3, 100, 30)
    photo = saved(tmp_path, Image.fromarray(pixels).resize((1600, 800)), "a.jpg")
    small = decode_image(photo, channels=3, size=(20, 20))
    assert (small.float() - out.float()).abs().mean() < 4


def folder_with_bad_files(root):
    genuine.class_folders(root, each=12)
    photo = genuine.encoded(genuine.images(1, 64, 64, 3)[0], "JPEG")
    png = genuine.encoded(genuine.images(1, 64, 64, 3)[0], "PNG")
    bad = {
        "empty.png": b"",
        "text.jpg": b"this is no image",
        "cut.jpg": photo[: len(photo) // 2],
        "cut.png": png[: len(png) // 2],
        "head.png": png[:20],
    }
    for name, content in bad.items():
        (root / "cat" / name).write_bytes(content)
    # 20,000 × 20,000 pixels in a few kilobytes
    Image.new("1", (20_000, 20_000)).save(root / "dog" / "huge.png")
    Image.new("1", (10_000, 10_000)).save(root / "dog" / "large.png")
    return {*(f"cat/{name}" for name in bad), "dog/huge.png", "dog/large.png"}


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("limit", [2**31, 0], ids=["memory", "streamed"])
def test_bad_files_are_named_before_anything_is_trained(tmp_path, limit):
    root = tmp_path / "pets"
    bad = folder_with_bad_files(root)
    with pytest.raises(BadImagesError, match=r"7 images can't be used.*skip_bad=True") as caught:
        load_data(root, memory_limit=limit, size=16)
    assert {each.path.relative_to(root).as_posix() for each in caught.value.bad} == bad
    reasons = {each.path.name: each.reason for each in caught.value.bad}
    assert reasons["empty.png"] == "empty file"
    assert "enormous" in reasons["huge.png"]
    assert "10000 × 10000" in reasons["large.png"]
    assert "truncated" in reasons["cut.jpg"]
    data = load_data(root, memory_limit=limit, size=16, skip_bad=True)
    assert len(data.train) + len(data.test) == 24
    assert len(data.skipped) == 7
    assert isinstance(data.train, MemoryImages if limit else FileImages)
    assert data.train.batch(torch.arange(len(data.train))).shape == (len(data.train), 3, 16, 16)


def test_photographs_that_pillow_can_t_read_are_not_passed_over(tmp_path):
    genuine.class_folders(tmp_path / "a")
    photo = tmp_path / "a" / "cat" / "IMG_0001.HEIC"
    photo.write_bytes(bytes(4) + b"ftypheic")
    with pytest.raises(
        BadImagesError, match=r"(?s)1 image can't .*IMG_0001.HEIC: not an image .*JPEG"
    ):
        load_data(tmp_path / "a")
    assert len(load_data(tmp_path / "a", skip_bad=True).skipped) == 1
    assert len(list(image_files(tmp_path / "a"))) == 11
    pixels = np.full((20, 20, 3), 90, np.uint8)
    Image.fromarray(pixels).save(photo.with_name("b.avif"))
    assert load_data(tmp_path / "a", skip_bad=True).skipped[0].startswith(str(photo))


def test_ten_bad_files_are_listed_and_the_rest_counted(tmp_path):
    genuine.class_folders(tmp_path / "a")
    for number in range(13):
        (tmp_path / "a" / "dog" / f"bad{number:02d}.png").touch()
    with pytest.raises(BadImagesError) as caught:
        load_data(tmp_path / "a")
    text = str(caught.value)
    assert text.startswith("13 images")
    assert text.count(": empty file") == 10
    assert "and 3 more" in text


def test_a_class_without_readable_images_is_an_error(tmp_path):
    genuine.class_folders(tmp_path / "a", ("cat", "dog"), each=3)
    for path in (tmp_path / "a" / "dog").iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match="no readable training image is left of the class 'dog'"):
        load_data(tmp_path / "a", skip_bad=True)
    for path in (tmp_path / "a" / "cat").iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match="no readable"):
        load_data(tmp_path / "a", skip_bad=True)


def test_files_through_torch_s_loader(tmp_path):
    genuine.class_folders(tmp_path / "a", each=10)
    held = load_data(tmp_path / "a")
    streamed = load_data(tmp_path / "a", memory_limit=0)
    assert isinstance(streamed.train, FileImages)
    loader = DataLoader(streamed.train, batch_size=5, num_workers=1)
    batches = list(loader)
    assert torch.equal(torch.cat([pixels for pixels, _ in batches]), held.train.images)
    assert torch.equal(torch.cat([labels for _, labels in batches]), held.train.labels)
    for ours, theirs in zip(
        channel_statistics(streamed.train), channel_statistics(held.train), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_a_file_that_goes_bad_later(tmp_path):
    genuine.class_folders(tmp_path / "a", each=10)
    strict = load_data(tmp_path / "a", memory_limit=0)
    lenient = load_data(tmp_path / "a", memory_limit=0, skip_bad=True)
    strict.train.paths[3].write_bytes(b"")
    with pytest.raises(BadImagesError, match="empty file"):
        strict.train[3]
    with pytest.warns(UserWarning, match="in place of .*empty file"):
        pixels, label = lenient.train[3]
    assert label == strict.train.labels[3]
    assert torch.equal(pixels, strict.train[4][0])
    with pytest.raises(BadImagesError, match=r"^1 image can't be used.*\n  .*: empty file\n?$"):
        list(DataLoader(strict.train, num_workers=1))


def test_class_folders(tmp_path):
    root = tmp_path / "pets"
    genuine.class_folders(root, ("dog", "Cat", "ant"), each=10)
    genuine.png(root / "dog" / "more" / "x.PNG", genuine.images(1, 20, 20, 3)[0])
    (root / "dog" / "notes.txt").write_text("not an image")
    (root / "dog" / ".hidden.png").write_bytes(b"")
    (root / ".cache").mkdir()
    data = load_data(root)
    assert data.name == "pets"
    assert data.class_names == ("Cat", "ant", "dog")
    assert (len(data.train), len(data.test)) == (25, 6)
    assert data.size == (20, 20)
    assert data.mirror
    assert load_data(root).digest == data.digest
    assert torch.equal(load_data(str(root)).test.images, data.test.images)


@pytest.mark.parametrize(
    ("parts", "train", "test"),
    [
        (("train", "test"), 6, 6),
        (("train", "val"), 6, 6),
        (("Train", "Test"), 6, 6),
        (("train", "val", "test"), 12, 6),
        (("train", "dev"), 6, 6),
        (("train", "eval"), 6, 6),
        (("training", "evaluation"), 6, 6),
        (("train", "Held-Out"), 6, 6),
        (("train", "holdout"), 6, 6),
        (("train", "dev", "test"), 12, 6),
        (("train", "val", "hold_out"), 12, 6),
    ],
)
def test_folders_with_parts(tmp_path, parts, train, test):
    for number, part in enumerate(parts):
        genuine.class_folders(tmp_path / "a" / part, each=3, seed=10 * number)
    data = load_data(tmp_path / "a")
    assert (len(data.train), len(data.test)) == (train, test)
    assert data.class_names == ("cat", "dog")


def test_a_class_may_be_called_train(tmp_path):
    genuine.class_folders(tmp_path / "a", ("bus", "train"))
    assert load_data(tmp_path / "a").class_names == ("bus", "train")


def test_a_class_called_train_may_be_sorted_further(tmp_path):
    for name in ("train", "dev", "bus"):
        genuine.class_folders(
            tmp_path / "a" / name, ("2023", "2024") if name == "bus" else ("red",)
        )
    with pytest.raises(DataError, match="train and dev folders beside bus; move"):
        load_data(tmp_path / "a")
    (tmp_path / "a" / "dev").rename(tmp_path / "a" / "tram")
    with pytest.raises(DataError, match="train and tram hold folders of the same names"):
        load_data(tmp_path / "a")
    (tmp_path / "a" / "tram" / "red").rename(tmp_path / "a" / "tram" / "blue")
    assert load_data(tmp_path / "a").class_names == ("bus", "train", "tram")


@pytest.mark.parametrize("other", ["query", "images_test", "unseen"])
def test_a_part_of_an_unknown_name_is_no_class(tmp_path, other):
    genuine.class_folders(tmp_path / "a" / "train", ("cat", "dog"))
    genuine.class_folders(tmp_path / "a" / other, ("cat",))
    with pytest.raises(
        DataError, match=f"train and {other} hold folders of the same names \\(cat"
    ) as error:
        load_data(tmp_path / "a")
    assert f"call {other} test" in str(error.value)
    (tmp_path / "a" / other).rename(tmp_path / "a" / "test")
    assert load_data(tmp_path / "a").class_names == ("cat", "dog")


def test_a_folder_beside_train_and_test_is_no_class(tmp_path):
    for part in ("train", "test"):
        genuine.class_folders(tmp_path / "a" / part, ("cat", "dog"))
    genuine.png(tmp_path / "a" / "masks" / "1.png", genuine.images(1, 9, 9)[0])
    with pytest.raises(DataError, match="train and test folders beside masks; move"):
        load_data(tmp_path / "a")


def test_files_have_one_channel_or_three(tmp_path):
    genuine.png(tmp_path / "1.png", genuine.images(1, 9, 9)[0])
    with pytest.raises(DataError, match=r"1 channel \(grey\) or 3 \(RGB\); 4 are wanted"):
        decode_image(tmp_path / "1.png", channels=4)


def test_training_images_alone_are_split(tmp_path):
    genuine.class_folders(tmp_path / "a" / "train", each=5)
    assert len(load_data(tmp_path / "a").test) == 2


def test_photographs_of_one_camera_are_brought_to_a_size_that_can_be_trained_on(tmp_path):
    for width, expected in ((512, (300, 512)), (513, (224, 224))):
        for number in range(6):
            path = tmp_path / str(width) / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (width, 300), (number, 0, 0)).save(path)
        assert load_data(tmp_path / str(width)).size == expected
    assert load_data(tmp_path / "513", size=600).size == (600, 600)


def test_mixed_sizes_and_colours(tmp_path):
    root = tmp_path / "a"
    genuine.class_folders(root, ("x", "y"), each=3, size=(20, 30))
    genuine.png(root / "x" / "grey.png", genuine.images(1, 50, 40)[0])
    data = load_data(root)
    assert data.train.shape == (3, 224, 224)
    assert load_data(root, size=32).size == (32, 32)
    assert load_data(root, size=(32, 48)).size == (32, 48)
    assert load_data(root, mixed_size=(256, 250)).size == (256, 250)
    assert load_data(root, size=32, mixed_size=(256, 256)).size == (32, 32)
    with pytest.raises(ValueError, match="mixed_size must be at least 1, got 0"):
        load_data(root, mixed_size=(256, 0))
    with pytest.raises(ValueError, match=r"size must be a height and a width.*got \(32, 32, 3\)"):
        load_data(root, size=(32, 32, 3))
    with pytest.raises(TypeError, match=r"size must be an integer, got '32'"):
        load_data(root, size="32")
    assert "to 224 × 224 pixels: images of 2 sizes (30 × 20 to 40 × 50); image" in data.resized
    grey = tmp_path / "grey"
    for number in range(4):
        genuine.png(grey / "xy"[number % 2] / f"{number}.png", genuine.images(1, 9, 12)[0])
    assert load_data(grey, mixed_size=(256, 256)).train.shape == (1, 9, 12)


@pytest.mark.parametrize("size", [(8, 8), (4, 12), (12, 4), (30, 20), (20, 30)])
def test_files_and_packs_are_brought_to_a_size_alike(tmp_path, size):
    genuine.class_folders(tmp_path / "a", ("x", "y"), each=5, size=(20, 10))
    original, files = load_data(tmp_path / "a"), load_data(tmp_path / "a", size=size)
    arrays = {
        name: each.permute(0, 2, 3, 1).numpy() if each.dim() == 4 else each.numpy()
        for part, images in (("train", original.train), ("test", original.test))
        for name, each in ((f"x_{part}", images.images), (f"y_{part}", images.labels))
    }
    np.savez(tmp_path / "a.npz", **arrays)
    packed = load_data(tmp_path / "a.npz", size=size)
    assert packed.train.shape == files.train.shape == (3, *size)
    difference = packed.train.images.int() - files.train.images.int()
    assert difference.abs().float().mean() < 3  # Pillow enlarges and cuts by fractions of a pixel


def test_a_few_files_of_another_size_are_brought_to_that_of_the_others(tmp_path):
    root = tmp_path / "a"
    genuine.class_folders(root, ("x", "y"), each=18, size=(20, 30))
    assert not load_data(root).resized
    for number in range(4):
        genuine.png(root / "y" / f"odd {number}.png", genuine.images(1, 99, 80 + number)[0])
        data = load_data(root)
        assert data.size == (20, 30)
    assert data.resized == (
        "brought to 30 × 20 pixels, the size of the others: 4 of 40 images "
        "(y/odd 0.png, y/odd 1.png, y/odd 2.png and 1 more)"
    )
    genuine.png(root / "y" / "odd 4.png", genuine.images(1, 99, 80)[0])
    assert load_data(root).size == (224, 224)
    assert load_data(root, size=25).size == (25, 25)
    assert not load_data(root, size=25).resized


def test_one_file_of_another_size_is_said_with_its_name(tmp_path):
    genuine.class_folders(tmp_path / "a", ("x", "y"), each=6, size=(20, 30))
    genuine.png(tmp_path / "a" / "x" / "z.png", genuine.images(1, 40, 40)[0])
    report = check_data(tmp_path / "a")
    assert report.shape[1:] == (20, 30)
    assert report.notes == [
        "brought to 30 × 20 pixels, the size of the others: 1 of 13 images (x/z.png)"
    ]


def test_what_is_not_a_folder_of_class_folders(tmp_path):
    root = tmp_path / "a"
    root.mkdir()
    with pytest.raises(DataError, match="no class folders"):
        load_data(root)
    genuine.class_folders(root, ("cat",))
    with pytest.raises(DataError, match="only one class, 'cat'"):
        load_data(root)
    (root / "dog").mkdir()
    with pytest.raises(DataError, match="no images in the class folders dog"):
        load_data(root)
    genuine.class_folders(tmp_path / "b" / "train", ("cat", "dog"))
    genuine.class_folders(tmp_path / "b" / "test", ("cat", "eel"))
    with pytest.raises(DataError, match="no training images of the classes eel"):
        load_data(tmp_path / "b")
    genuine.class_folders(tmp_path / "c", ("cat", "dog"), each=1)
    with pytest.raises(DataError, match="nothing to test on"):
        load_data(tmp_path / "c")
    (tmp_path / "d.txt").touch()
    with pytest.raises(DataError, match="neither a folder"):
        load_data(tmp_path / "d.txt")


def test_csv(tmp_path):
    genuine.class_folders(tmp_path / "in", each=6)
    rows = [
        f"in/{name}/{n:03d}.png,{label}"
        for name, label in (("cat", 10), ("dog", 9))
        for n in range(6)
    ]
    file = tmp_path / "pets.csv"
    file.write_text("\ufeffPath, Label\n" + "\n".join(rows), encoding="utf-8")
    data = load_data(file)
    assert data.name == "pets"
    assert data.class_names == ("9", "10")
    assert (len(data.train), len(data.test)) == (10, 2)
    parts = ["train", "train", "dev", "Training", "hold-out", ""] * 2
    split = [f"{row},{part}" for row, part in zip(rows, parts, strict=True)]
    file.write_text("path,label,split\n" + "\n".join(split))
    data = load_data(file)
    assert (len(data.train), len(data.test)) == (10, 2)
    expected = decode_image(tmp_path / "in" / "cat" / "004.png", channels=3)
    assert torch.equal(data.test.images[0], expected)


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_columns_of_a_csv_are_separated_as_its_first_line_says(mark, quote, tmp_path):
    rows = [("Path", "Label", "Split"), ("a,b;c.png", "cat, big", "train"), ("d.png", "dog;", "")]
    rows.append(("e.png", "cat, big", "val"))
    text = io.StringIO()
    always = csv.QUOTE_ALL if quote else csv.QUOTE_MINIMAL
    csv.writer(text, delimiter=mark, quoting=always).writerows(rows)
    (tmp_path / "a.csv").write_text(text.getvalue(), encoding="utf-8-sig", newline="")
    found = list_csv(tmp_path / "a.csv")
    assert [path.name for path in found.paths] == ["a,b;c.png", "d.png", "e.png"]
    assert found.class_names == ("cat, big", "dog;")
    assert found.testing.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it says nothing"),
        ("file;class\na.png;1", "path,label\\[,split\\], it says file;class"),
        ("path label\na.png 1", "it says path label"),
        (
            "path,label,a;path;label\n",
            "a.csv, line 1: .* whether commas or semicolons separate them; use one",
        ),
        (
            "path;label\na.png;1\n\nb.png,2\n",
            r"a.csv, line 4: .* label is missing \(columns are separated by semicolons\)",
        ),
        ("path,label\na.png,1\nb, c.png,2\n", "a.csv, line 3: more columns .* holds commas"),
        ("path;label\na;b.png;1\n", "a.csv, line 2: more columns .* holds semicolons"),
        ("path,label\na.png,1,\nb.png,2,,\n", "2 images can't be used"),
        ("file,class\na.png,1", "path,label\\[,split\\], it says file,class"),
        ("path,label\n", "no images"),
        ("path,label\na.png,\n", "line 2: the path or the label is missing"),
        ("path,label\na.png\n", "line 2: the path or the label is missing"),
        ("path,label,split\na.png,1,trian\n", "line 2: split must be train, test or val"),
        ("path,label\na.png,1\nb.png,2\n", "(?s)2 images can't be used.*a.png: no such file"),
    ],
)
def test_what_is_not_a_csv_of_images(tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        load_data(tmp_path / "a.csv")


def test_a_csv_in_another_encoding(tmp_path):
    (tmp_path / "a.csv").write_bytes("path,label\nä.png,1\n".encode("utf-16"))
    with pytest.raises(DataError, match="UTF-8"):
        load_data(tmp_path / "a.csv")


def written_as(kind, path, **options):
    Image.new("L", (8, 8), 90).convert("RGB").save(path, format=kind, **options)
    return path


@pytest.mark.parametrize(
    "kind", ["JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "AVIF", "JPEG2000", "PPM", "MPO"]
)
def test_the_formats_that_are_read_whatever_a_file_is_called(kind, tmp_path):
    options = {"save_all": True, "append_images": [Image.new("RGB", (8, 8))]}
    path = written_as(kind, tmp_path / "a.png", **(options if kind == "MPO" else {}))
    pixels = decode_image(path, channels=1)
    assert (pixels.shape, abs(int(pixels.float().mean()) - 90) < 3) == ((1, 8, 8), True)


@pytest.mark.parametrize("kind", ["EPS", "PCX", "ICO", "TGA", "SGI", "DDS", "ICNS", "XBM"])
def test_no_other_format_is_tried(kind, tmp_path):
    path = tmp_path / "a.png"
    if kind == "XBM":
        Image.new("1", (8, 8)).save(path, format=kind)
    else:
        written_as(kind, path)
    assert Image.open(path).format == kind, "Pillow itself must know it, or the test shows nothing"
    for read in (decoding.read_header, decoding.verify_image):
        with pytest.raises(BadImagesError, match=r"a\.png: not an image that Pillow can read; con"):
            read(path)


def test_formats_that_this_pillow_lacks_are_left_out(tmp_path, monkeypatch):
    Image.init()
    monkeypatch.delitem(Image.OPEN, "AVIF")
    assert decode_image(written_as("PNG", tmp_path / "a.png"), channels=1).shape == (1, 8, 8)
    path = tmp_path / "b.png"
    path.write_bytes(bytes(4) + b"ftypavif" + bytes(20))
    with pytest.raises(BadImagesError, match="convert it to JPEG or PNG"):
        decode_image(path, channels=1)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(BadImagesError, match=r"a\.png: no such file"):
        decode_image(tmp_path / "a.png", channels=1)


def test_a_file_whose_name_is_no_text(tmp_path):
    genuine.class_folders(tmp_path / "a")
    first = tmp_path / "a" / "cat" / "000.png"
    plain = load_data(tmp_path / "a", memory_limit=0).digest
    first.rename(first.with_name("caf\udce9.png"))
    for limit in (2**31, 0):
        data = load_data(tmp_path / "a", memory_limit=limit)
        assert len(data.train) + len(data.test) == 10
    assert data.digest != plain


def test_a_class_folder_whose_name_is_no_text(tmp_path):
    genuine.class_folders(tmp_path / "a", ("cat", "caf\udce9"))
    with pytest.raises(DataError, match=r"the class folder caf\\xe9 is not UTF-8.*: rename it"):
        load_data(tmp_path / "a")
