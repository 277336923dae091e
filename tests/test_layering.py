"""The order of the rooms: a module imports its own room and those named before it, nothing that comes later.

Every import counts: inside functions and for type checking too, and the "module:name" texts of tables. The table in
docs/architecture.md has the rooms in this order.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from isostep.cli import MODULES as COMMANDS
from tests.conftest import ROOT

PACKAGE = ROOT / "src" / "isostep"
ROOMS = """
    base state noise_kernels noise trace geometry process network control solver solution loop
    item dataset settings family model sampling run metric training study reporting cli
""".split()  # noqa: SIM905
FACE = {"__init__", "__main__"}  # the package itself stands in front of all
HOME = re.compile(r"^(isostep(\.\w+)+):\w+$")


def upward(room: str, source: str) -> list[str]:
    """What a module of `room` imports of later rooms, with its line."""
    return [
        f"line {line} imports {name}"
        for line, name in imported(ast.parse(source))
        if room not in FACE and (name.split(".")[1] not in ROOMS or ROOMS.index(name.split(".")[1]) > ROOMS.index(room))
    ]


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import of this package."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{'.' * node.level or ''}{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (home := HOME.match(node.value)):
            names = [home[1]]
        for name in names:
            assert not name.startswith("."), f"line {node.lineno}: a relative import hides its room"
            if name.startswith("isostep."):
                yield node.lineno, name


def room_of(path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(PACKAGE / "embedded"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_imports_a_later_room(path):
    assert not upward(room_of(path), path.read_text()), path


def test_every_room_has_its_place_and_every_place_a_room():
    assert {room_of(path) for path in MODULES} - FACE == set(ROOMS)


@pytest.mark.parametrize(
    "source",
    [
        "import isostep.loop",
        "from isostep.loop import integrate",
        "from isostep import loop",
        "def late():\n    from isostep.settings.resolve import build",
        "if TYPE_CHECKING:\n    from isostep.model.model import Model",
        "ENTRY = Entry('isostep.loop:integrate')",
        "from isostep import __version__",
    ],
)
def test_every_way_to_import_counts(source):
    assert upward("control", source)
    assert not upward("cli", source.replace("__version__", "base"))


def test_the_page_on_architecture_has_the_same_order():
    page = (ROOT / "docs" / "architecture.md").read_text()
    listed = re.findall(r"^\| `(\w+)(?:/|\.py)`", page, re.M)
    assert listed == [room for room in ROOMS if room != "noise_kernels"]


ROWS = re.findall(
    r"^\| `(\w+)/` \|[^|]*\|([^|]*)\|$", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.M
)


@pytest.mark.parametrize(("room", "text"), ROWS, ids=[room for room, _ in ROWS])
def test_the_page_names_every_module_and_no_other(room, text):
    there = {path.name for path in MODULES if room_of(path) == room} - {"__init__.py"}
    if room == "cli":  # one module a command, in a list of its own
        assert there == {f"{name}.py" for name in COMMANDS}
    else:
        assert set(re.findall(r"`(\w+\.py)`", text)) == there, f"docs/architecture.md, row of {room}/"
    for name in re.findall(r"`(\w+/)`", text):
        assert (PACKAGE / room / name).is_dir(), f"{room}/{name}"
