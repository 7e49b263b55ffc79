import ast
from itertools import islice
from pathlib import Path

from changes import draw

SOURCE = Path(__file__).resolve().parents[1] / "src"


def test_mutants_are_python_that_differs_and_follow_from_the_seed():
    mutants = list(islice(draw(SOURCE, seed=0), 60))
    for mutant in mutants:
        source = (SOURCE / mutant.file).read_bytes()
        assert ast.dump(ast.parse(mutant.of(source))) != ast.dump(ast.parse(source)), mutant
    assert len(set(map(str, mutants))) == 60
    assert mutants == list(islice(draw(SOURCE, seed=0), 60)) != list(islice(draw(SOURCE, 1), 60))


def test_texts_types_and_representations_stay(tmp_path):
    module = tmp_path / "torchlace" / "heads" / "one.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        '"""One."""\n'
        "def call(x: int | None, *, scale: float = 2.0) -> int:\n"
        '    """Call it 3 times."""\n'
        "    if x < 1:\n"
        "        raise ValueError(f'at least {1}, got {x + 1}')\n"
        "    return x\n"
        "def __repr__(self):\n"
        "    return 'a' + 'b'\n"
    )
    assert {str(mutant).partition(": ")[2].partition(" → ")[0] for mutant in draw(tmp_path, 0)} == {
        "2.0",
        "x < 1",
        "1",
        "raise ValueError(f'at least {1}, got {x + 1}')",
    }
