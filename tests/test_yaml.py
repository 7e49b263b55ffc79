"""YAML from anywhere: what is read, and what would hang or bring down whoever reads it."""

import pytest

from torchlace._yaml import read_yaml_file, read_yaml_text

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join(9 * [f'*a{i - 1}'])}]\n" for i in range(1, 30)
)
MERGES = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join(9 * [f'*a{i - 1}'])}]}}\n" for i in range(1, 30)
)
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 5000))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("a: 1\nb: [x, 2.5, true]", {"a": 1, "b": ["x", 2.5, True]}),
        ("a: &x {c: 1}\nb: {<<: *x, d: *x}", {"a": {"c": 1}, "b": {"c": 1, "d": {"c": 1}}}),
        ("base: &b {x: 1}\nmine: {<<: *b, x: 2}", {"base": {"x": 1}, "mine": {"x": 2}}),
        ("ä: 1e-3", {"ä": "1e-3"}),
        ("[" * 49 + "]" * 49, None),
    ],
)
def test_settings_are_read_as_ever(text, expected):
    found = read_yaml_text(text, "a.yaml")
    assert expected is None or found == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", r"is not valid YAML: .* '<stream end>' \(line 1, column 5\)"),
        ("a: 1\n---\nb: 2", r"is not valid YAML: .* another document \(line 2"),
        ("a: \0", "is not valid YAML: unacceptable character #x0000"),
        ("a: !!python/object:os.system x", "is not valid YAML: could not determine a constructor"),
        ("a: 2001-99-99", r"is not valid YAML: '2001-99-99' can't be read as timestamp \(line 1"),
        ("a: !!bool perhaps", "is not valid YAML: 'perhaps' can't be read as bool"),
        ("a: !!int ''", "is not valid YAML: '' can't be read as int"),
        ('"\\U00110000"', "is not valid YAML: "),
        ("a: 1\nb: 2\na: 3", "has the key 'a' twice, in lines 1 and 3: rename or remove one"),
        ("- [{b: 1, b: 2}]", "has the key 'b' twice"),
        ("a: " + "9" * 5000, "holds a number of 5,000 digits in line 1"),
        ("a: " + "1:" * 5000 + "1", "holds a number of 10,001 digits in line 1"),
        ("[" * 5000, "is nested more than 50 deep in line 1: .*brackets"),
        ("a: {" * 5000, "is nested more than 50 deep"),
        ("- " * 5000 + "a", "is nested more than 50 deep"),
        ("\n".join(f"{' ' * i}a:" for i in range(100)), "is nested more than 50 deep in line 50"),
        (CHAIN, "is nested more than 50 deep by the aliases"),
        (LAUGHS, "would grow by more than 10,000 values .* begins in line"),
        (MERGES, "would grow by more than 10,000 values"),
        ("a: &a [*a]", "has an alias in what begins in line 1 that names itself"),
        ("&a {b: {c: *a}}", ".* that names itself"),
    ],
)
def test_what_can_not_be_settings_is_refused_at_once(text, message):
    with pytest.raises(ValueError, match=rf"^a\.yaml {message}") as error:
        read_yaml_text(text, "a.yaml")
    assert "\n" not in str(error.value)


def test_files_are_utf_8_and_of_a_size(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: caf\xe9")
    with pytest.raises(ValueError, match=r"a\.yaml is not UTF-8 text \(see byte 6\): save it"):
        read_yaml_file(path)
    path.write_bytes(b"# " + bytes(9 << 20))
    with pytest.raises(ValueError, match=r"a\.yaml is larger than 8 MiB"):
        read_yaml_file(path)
    path.write_text("a: café")
    assert read_yaml_file(path) == {"a": "café"}
