"""Cubes and spectra in files."""

import zipfile

import numpy as np
import pytest
import spectral.io.envi as envi
from detection.scenes import scene

from torchlace.detection import open_cube
from torchlace.detection.targets import read_targets


def read_cube(path):
    return open_cube(path)[:]


SPECTRA = np.array([[1.0, 2.5, 3e-1], [4.0, 5.0, -6.0]])


@pytest.mark.parametrize(
    "text",
    [
        "1,2.5,3e-1\n4,5,-6\n",
        "1;2.5;0.3\n4;5;-6",
        "1 2.5 0.3\n4  5\t-6\n",
        "\n1, 2.5, 0.3\n\n4, 5, -6\n\n",
        "red,green,blue\n1,2.5,.3\n4,5,-6\n",
        "1,2.5,.3,\n4,5,-6,\n",
        "\ufeff1,2.5,.3\r\n4,5,-6\r\n",
        "1;2,5;3e-1\n4;5;-6",
        "1;2,5;3E-1;\r\n4,0;5,00;-6;;\r\n",
        "\nRotton, hell;Grün;Blau\n1 ; 2,5 ;0,3\n\n4;5;-6\n;;\n",
        "rouge\tvert\tbleu\n1\t2,5\t0,3\n4\t5\t-6\n",
        "1\t2,5\t,3\n4\t5\t-6\n",
        "1.0,\t2.5,\t0.3\n4, 5, -6\n",
        "1 ,2.5 , .3\n4 5 -6\n",
        "of grass, dry\n1;2.5;0.3\n4;5;-6\n",
    ],
)
def test_spectra_in_lines(text, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    np.testing.assert_array_equal(read_targets(path, 3), SPECTRA)


def test_one_spectrum_in_a_line_a_column_or_an_array(tmp_path):
    (tmp_path / "line.csv").write_text("1,2,3\n")
    (tmp_path / "column.csv").write_text("reflectance\n1\n2\n3\n")
    np.save(tmp_path / "array.npy", np.array([1.0, 2, 3]))
    (tmp_path / "decimal commas.csv").write_text("Reflexion;\n1,0;\n2;\n3,00;\n")
    for name in ("line.csv", "column.csv", "array.npy", "decimal commas.csv"):
        np.testing.assert_array_equal(read_targets(tmp_path / name, 3), [1, 2, 3])
    np.save(tmp_path / "two.npy", SPECTRA)
    np.testing.assert_array_equal(read_targets(tmp_path / "two.npy", 3), SPECTRA)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n", r"holds an array of 1 × 2 numbers; expected one line of 3 numbers"),
        ("400,.1\n500,.2\n600,.3\n", "it looks transposed: spectra go in lines"),
        ("1,2,3\n4,5\n", r"lines differ in length \(3 numbers in line 1, 2 in line 2\)"),
        ("a;b;c\n\n1;2;3\n4;5\n", r"differ in length \(3 numbers in line 3, 2 in line 4\)"),
        ("0,1\n0,2\n0,3\n", "if its commas are decimal ones, end its lines in semicolons"),
        ("1,5 2,5 0,3\n", "a.csv, line 1: '1,5 2,5 0,3' holds commas and spaces"),
        ("a b c\n1,5 -2,5 ,3\n", "a.csv, line 2: .* holds commas and spaces"),
        ("1;2;3\n4;1,5;6\n\n7;1.5;3\n", "a.csv, line 4: numbers hold commas as well as points"),
        ("1.234,5;2;3\n", "a.csv, line 1: numbers hold commas as well as points"),
        ("1;2;3\n4,5,6\n", "a.csv, line 2: not all are numbers .*'4,5,6'"),
        ("1,2,3\n4;5;6\n", "a.csv, line 2: not all are numbers .*'4;5;6'"),
        ("1;;3\n", "a.csv, line 1: not all are numbers"),
        ("1,2,3\n4,x,6\n", "line 2: not all are numbers"),
        ("1,2x,3\n4,5,6\n", "line 1: not all are numbers"),
        ("grass,1,2,3\n", "line 1: not all are numbers"),
        ("", "holds no numbers"),
        ("a,b,c\n", "holds no numbers"),
    ],
)
def test_wrong_spectra_are_errors(text, message, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_targets(tmp_path / "a.csv", 3)


def test_files_that_are_not_what_they_seem(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(ValueError, match="not a text file"):
        read_targets(tmp_path / "a.csv", 3)
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00cut off")
    for read in (read_cube, lambda path: read_targets(path, 3)):
        with pytest.raises(ValueError, match=r"not a readable \.npy"):
            read(tmp_path / "a.npy")
        with pytest.raises(FileNotFoundError, match="there is no file"):
            read(tmp_path / "nowhere.npy")
    with zipfile.ZipFile(tmp_path / "a.npy", "w") as archive:
        archive.writestr("x", "")
    for content in (b"1 2 3\n4 5 6\n", b"", (tmp_path / "a.npy").read_bytes()):
        (tmp_path / "a.npy").write_bytes(content)
        for read in (read_cube, lambda path: read_targets(path, 3)):
            with pytest.raises(ValueError, match=r"npy array: it does not begin as one") as caught:
                read(tmp_path / "a.npy")
            assert "pickle" not in str(caught.value)
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"not a readable \.npy"):
        read_cube(tmp_path / "objects.npy")
    wrongs = [np.zeros(5), np.zeros((2, 2, 2, 2)), np.array([["a"]]), np.zeros((0, 4))]
    for wrong in (*wrongs, np.ones((2, 3), dtype=complex)):
        np.save(tmp_path / "wrong.npy", wrong)
        with pytest.raises(ValueError, match=r"of shape \(H, W, bands\) or \(N, bands\), got"):
            read_cube(tmp_path / "wrong.npy")
    (tmp_path / "a.mat").write_bytes(b"")
    with pytest.raises(ValueError, match=r"a cube is a \.npy array, the \.hdr"):
        read_cube(tmp_path / "a.mat")


@pytest.mark.parametrize("interleave", ["bsq", "bil", "bip"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_envi_images(interleave, dtype, tmp_path):
    image = (1000 * scene()[0]).astype(dtype)
    path = tmp_path / "cube.hdr"
    envi.save_image(str(path), image, interleave=interleave)
    np.testing.assert_array_equal(read_cube(path), image)


def test_the_scale_factor_of_an_envi_header_is_applied(tmp_path):
    image = (1000 * scene()[0]).astype(np.uint16)
    path = tmp_path / "cube.hdr"
    envi.save_image(str(path), image, metadata={"reflectance scale factor": 1000})
    np.testing.assert_allclose(read_cube(path), image / 1000)


@pytest.mark.filterwarnings("ignore:Image data contains NaN")
@pytest.mark.parametrize("value", ["-9999.99", "-0.1", "1e-34", "-3.40282347e+38", "1e39", "nan"])
@pytest.mark.parametrize("dtype", [">f4", "<f4", "<f8"])
def test_no_data_is_what_the_images_own_type_makes_of_the_number(value, dtype, tmp_path):
    image = scene()[0].astype(dtype)
    with np.errstate(over="ignore"):
        image[2, 3], image[4, 5, 6] = np.float64(value), np.float64(value)
    found = saved_and_read(tmp_path, image, value)
    expected = np.zeros(image.shape, dtype=bool)
    expected[2, 3], expected[4, 5, 6] = True, True
    np.testing.assert_array_equal(found.mask, expected)
    np.testing.assert_array_equal(np.isnan(found.data), expected)
    np.testing.assert_array_equal(found.data[~expected], image[~expected])


@pytest.mark.parametrize(
    ("value", "dtype", "pixel"),
    [
        ("-9999", np.int16, -9999),
        ("-9999.0", np.int16, -9999),
        ("6.5535e4", np.uint16, 65535),
        ("18446744073709551615", np.uint64, 2**64 - 1),
        ("9007199254740993", np.int64, 2**53 + 1),
    ],
)
def test_no_data_of_integers(value, dtype, pixel, tmp_path):
    image = np.full((4, 5, 3), pixel - 1, dtype=dtype)
    image[1, 2, 0] = pixel
    found = saved_and_read(tmp_path, image, value)
    assert np.argwhere(np.ma.getmaskarray(found)).tolist() == [[1, 2, 0]]


@pytest.mark.parametrize("value", ["-1", "65536", "7.5", "nan", "inf", "-1e300"])
def test_numbers_that_integers_can_not_be_match_nothing(value, tmp_path):
    image = np.array([0, 1, 7, 8, 65535] * 12, dtype=np.uint16).reshape(4, 5, 3)
    found = saved_and_read(tmp_path, image, value)
    assert not np.ma.isMaskedArray(found)
    np.testing.assert_array_equal(found, image)


def test_no_data_is_stored_before_the_scale_factor(tmp_path):
    image = np.arange(60, dtype=np.int16).reshape(4, 5, 3)
    found = saved_and_read(tmp_path, image, "49", {"reflectance scale factor": 49})
    np.testing.assert_array_equal(found.mask, image == 49)
    np.testing.assert_allclose(found.compressed(), np.delete(np.arange(60), 49) / 49)


def saved_and_read(folder, image, value, header=None):
    """An image that went through an ENVI file with this ``data ignore value``."""
    path = str(folder / "cube.hdr")
    metadata = {"data ignore value": value, **(header or {})}
    order = 1 if image.dtype.byteorder == ">" else 0
    envi.save_image(path, image, dtype=image.dtype, byteorder=order, metadata=metadata)
    return read_cube(path)


def test_broken_envi_images(tmp_path):
    path = tmp_path / "cube.hdr"
    envi.save_image(str(path), scene()[0])
    text = path.read_text()
    (tmp_path / "cube.img").unlink()
    with pytest.raises(ValueError, match="not a readable ENVI image"):
        read_cube(path)
    (tmp_path / "cube.img").write_bytes(b"short")
    with pytest.raises(ValueError, match="not a readable ENVI image"):
        read_cube(path)
    for broken in ("", "nonsense\n", text.replace("bands = 8", "")):
        path.write_text(broken)
        with pytest.raises(ValueError, match="not a readable ENVI image"):
            read_cube(path)


def headed(shape, kind="<f4", data=bytes(400)):
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode() + data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (headed((10**18, 4)), r"it says that it is float32 of shape \(1000000000000000000, 4\)"),
        (headed((10**12, 4)), "and holds 400 bytes"),
        (headed((-10, -10)), r"of shape \(-10, -10\)"),
        (headed((10**18, 4), "|V0"), "and holds 400 bytes"),
        (headed((4, 4), "|O"), "Python objects"),
        (headed("(" * 200), ""),
        (headed("'''"), ""),
        (headed("-" * 5000 + "1"), ""),
    ],
)
def test_arrays_that_claim_what_they_do_not_hold(content, message, tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    for read in (read_cube, lambda path: read_targets(path, 4)):
        with pytest.raises(ValueError, match=rf"a\.npy is not a readable \.npy array.*{message}"):
            read(path)


@pytest.mark.parametrize(
    ("line", "changed", "message"),
    [
        ("lines = 5", "lines = 99999999999", r"9999999 × 4 × 3 values are [\d,]+ bytes, .*has 120"),
        ("lines = 5", "lines = -5", r"-5 × 4 × 3 values"),
        ("lines = 5", "lines = 0", r"0 × 4 × 3 values"),
        ("lines = 5", "lines = {5}", "int"),
        ("header offset = 0", "header offset = 9999", "has 120"),
        ("data type = 2", "data type = 77", "unknown value '77'"),
        ("", "reflectance scale factor = 0", "its scale factor is 0"),
        ("", "reflectance scale factor = nan", "its scale factor is nan"),
        ("", "reflectance scale factor = {1}", "float"),
        ("", "data ignore value = {1, 2}", "float"),
        ("ENVI Standard", "ENVI Spectral Library", "it is a spectral library"),
    ],
)
def test_headers_of_envi_that_do_not_fit_their_file(line, changed, message, tmp_path):
    path = tmp_path / "a.hdr"
    envi.save_image(str(path), np.ones((5, 4, 3), np.int16), dtype=np.int16)
    text = path.read_text()
    assert line in text
    path.write_text(text.replace(line, changed) if line else f"{text}{changed}\n")
    with pytest.raises(ValueError, match=rf"a\.hdr is not a readable ENVI image: .*{message}"):
        read_cube(path)
