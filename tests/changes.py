"""The faults that tests/mutants.py puts into a module: each of them changes one place.

A comparison or a sign is swapped, a number or a switch changed, a condition negated, branches or
arguments are swapped, an argument, a call or a statement is removed. Texts, types and
representations stay as they are.
"""

import ast
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LAYERS = ("functional", "backgrounds", "heads")


@dataclass(frozen=True)
class Mutant:
    """A module of a layer with the text between two places replaced."""

    layer: str
    file: str
    line: int
    column: int
    start: int
    end: int
    text: str
    change: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.change}"

    def of(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def draw(source: Path, seed: int) -> Iterator[Mutant]:
    """Mutants by the seed, the layers in turn, each place at most once."""
    drawn = [_draw_layer(source, layer, seed) for layer in LAYERS]
    for turn in itertools.zip_longest(*drawn):
        yield from filter(None, turn)


def _draw_layer(source: Path, layer: str, seed: int) -> Iterator[Mutant]:
    places = []
    for file in sorted((source / "torchlace" / layer).glob("*.py")):
        content = file.read_bytes()
        starts = [0, *itertools.accumulate(map(len, content.splitlines(keepends=True)))]
        changes = Changes()
        changes.visit(ast.parse(content))
        places += [(file, starts, *place) for place in changes.found]
    rng = random.Random(f"{seed} {layer}")
    rng.shuffle(places)
    for file, starts, node, others in places:
        other = rng.choice(others)
        text = ast.unparse(other)
        yield Mutant(
            layer,
            file.relative_to(source).as_posix(),
            node.lineno,
            node.col_offset + 1,
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
            f"({text})" if isinstance(other, ast.expr) else text,
            f"{ast.unparse(node)} → {text}",
        )


COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


class Changes(ast.NodeVisitor):
    """Collects what may be changed in a module: for each place, the nodes that may replace it."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.AST, list[ast.AST]]] = []

    def add(self, node: ast.AST, *others: ast.AST) -> None:
        if different := [other for other in others if ast.unparse(other) != ast.unparse(node)]:
            self.found.append((node, different))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name not in ("__repr__", "extra_repr"):
            for part in (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
                self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """What messages say is no target."""

    def visit_Raise(self, node: ast.Raise) -> None:
        self.add(node, ast.Pass())

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.add(node, ast.Pass())
            if not ast.unparse(node.value.func).startswith("warnings."):
                self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
            self.add(node, ast.Pass())
        if not ast.unparse(node.value).startswith(("Literal[", "TypeVar(")):
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add(node, ast.Pass())
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.add(node.test, ast.UnaryOp(ast.Not(), node.test))
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.add(node, ast.IfExp(node.test, node.orelse, node.body))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        swaps = COMPARISONS[type(node.ops[0])]
        self.add(node, *(_with(node, ops=[swap(), *node.ops[1:]]) for swap in swaps))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in OPERATORS:
            self.add(node, _with(node, op=OPERATORS[type(node.op)]()))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.add(node, _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And()))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.add(node, node.operand)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.add(node, ast.Constant(not node.value))
        elif isinstance(node.value, int):
            self.add(node, ast.Constant(node.value + 1))
        elif isinstance(node.value, float):
            self.add(node, ast.Constant(2 * node.value or 1.0))

    def visit_Call(self, node: ast.Call) -> None:
        others = [
            _with(node, keywords=[k for k in node.keywords if k is not left_out])
            for left_out in node.keywords
            if left_out.arg not in ("strict", "stacklevel")
        ]
        if len(node.args) > 1 and not any(isinstance(each, ast.Starred) for each in node.args[:2]):
            others.append(_with(node, args=[node.args[1], node.args[0], *node.args[2:]]))
        method = isinstance(node.func, ast.Attribute)
        if method and not node.args and not isinstance(node.func.value, ast.Name):
            others.append(node.func.value)
        self.add(node, *others)
        self.generic_visit(node)


def _with(node: ast.AST, **parts: object) -> ast.AST:
    return type(node)(**{**dict(ast.iter_fields(node)), **parts})
