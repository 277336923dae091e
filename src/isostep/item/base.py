"""What every kind of item offers. A new kind is one class with a `kind`: defining it enters it in `KINDS`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Protocol

from pydantic import AfterValidator

from isostep.base.errors import InputError, located
from isostep.base.files import numbered_lines, replacing
from isostep.base.markup import Markup
from isostep.base.plugins import entry_points
from isostep.item.film import Sketch

if TYPE_CHECKING:
    from typing import Self

    import networkx
    from rdkit.Chem import Mol

    from isostep.state import GraphState

KINDS: dict[str, type[Item]] = {}


class Picture(NamedTuple):
    """SVG, what is written below it, and what is wrong with the item, if anything."""

    svg: Markup
    caption: str
    fault: str = ""


class Rejected(InputError):
    """What was given is no item: a result, counted by `item`, and of no further use."""

    def __init__(self, reason: str, item: Item) -> None:
        super().__init__(reason)
        self.item = item


class Item(ABC):
    """One generated thing: as a line of a file, as plain data, as a picture, and in the types of other libraries."""

    kind: ClassVar[str]  # its name in plans, cards and references
    file: ClassVar[str]  # of a run folder, one item a line
    wide: ClassVar[bool] = False  # its picture is wider than high
    space: ClassVar[str] = ""  # where the coordinates of `in_space` come from
    texts: ClassVar[Mapping[str, Callable[[Any, int], str]]] = {}  # format -> text of an item with its index

    def __init_subclass__(cls) -> None:
        if "kind" in cls.__dict__:
            KINDS[cls.kind] = cls

    @abstractmethod
    def to_line(self, index: int) -> str:
        """Without the line's end; the only form in which items are stored."""

    @classmethod
    @abstractmethod
    def from_line(cls, line: str, index: int | None = None) -> Self:
        """What `to_line` wrote; `index` is checked where given and the line holds one."""

    @classmethod
    def accepts(cls, value: Any) -> bool:
        """Whether it is another library's form of such an item, which `given` takes."""
        return False

    @classmethod
    def given(cls, value: Any) -> Self:
        raise InputError(f"a {cls.kind} cannot be made of {type(value).__name__}")

    def usable(self) -> Self:
        """As metrics take it; an InputError says why not."""
        return self

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """All of it as plain data, for JSON and Parquet."""

    @staticmethod
    @abstractmethod
    def columns(arrow: Any) -> list[tuple[str, Any]]:
        """Names and Arrow types of `fields`."""

    @abstractmethod
    def row(self) -> dict[str, Any]:
        """A few numbers for a table."""

    @abstractmethod
    def to_networkx(self) -> networkx.Graph[Any]: ...

    @abstractmethod
    def picture(self) -> Picture: ...

    def labels(self) -> dict[str, Any]:
        """What other libraries' graphs carry besides nodes and edges."""
        return {}

    def to_rdkit(self) -> Mol | None:
        raise InputError(f"a {self.kind} has no RDKit form; use .to_networkx()")

    def in_space(self) -> dict[str, Any] | None:
        """Atoms, coordinates and bonds for the viewer, where there are any."""
        return None

    @classmethod
    def tally(cls, items: Iterable[Any]) -> dict[str, int]:
        """How many of the items have which property; a run's summary states the shares."""
        return {}


class Decoder(Protocol):
    """From the denoised output to items."""

    @property
    def item(self) -> type[Item]: ...

    def __call__(self, mean: GraphState) -> list[Any]: ...

    def sketch(self, state: GraphState, k: int) -> Sketch:
        """Graph k of a state on its way."""
        ...


def kind_named(name: str) -> type[Item]:
    if name not in KINDS:
        for point in entry_points().values():  # a family of another package defines its items when it is imported
            point.load()
    if name not in KINDS:
        raise InputError(
            f"unknown kind of item {name[:60]!r}, known: {', '.join(KINDS)}; install the package that defines it"
        )
    return KINDS[name]


KindName = Annotated[str, AfterValidator(lambda name: kind_named(name).kind)]


def write_items(path: str | Path, items: Iterable[Item]) -> None:
    """One line per item, atomically."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(item.to_line(index) + "\n" for index, item in enumerate(items))


def read_items(folder: str | Path, kind: str) -> Iterator[tuple[int, Any]]:
    """(index, item) of what `write_items` wrote to the kind's file in `folder`; a bad line raises with its number."""
    item = kind_named(kind)
    path = Path(folder) / item.file
    for number, line in numbered_lines(path):
        with located(f"{path}, line {number}"):
            yield number - 1, item.from_line(line.rstrip("\n"), number - 1)
