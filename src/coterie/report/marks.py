"""Apply `marks.css` to standalone SVG files, so that they look as on the page."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from xml.etree import ElementTree

RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
VARIABLE = re.compile(r"var\(--(\w+)\)")
COLOURS = 12  # c0 to c11, then from the start
DASHES = 4  # d1 to d3, and none
NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # but names may contain them

Declarations = dict[str, str]


def asset(name: str) -> str:
    """The text of a style sheet or script beside this module."""
    return files("coterie.report").joinpath(name).read_text(encoding="utf-8")


def colour(number: int) -> str:
    """The class of the colour of a cluster, an expert or a label."""
    return f"c{number % COLOURS}"


def colour_and_dash(number: int) -> str:
    """The colour with a dash pattern, so that lines do not differ by colour alone."""
    dash = number % DASHES
    return f"{colour(number)} d{dash}" if dash else colour(number)


def standalone(drawing: str, background: str = "white", width: float | None = None, unit: str = "mm") -> str:
    """A page's drawing as a standalone SVG file: in the colours for paper, inlined at each element.

    `width` is in millimetres (or another unit); without it, the drawing keeps its size.
    """
    root = ElementTree.fromstring(NOT_IN_XML.sub("\ufffd", drawing))
    for element in root.iter():
        classes = set((element.attrib.pop("class", "")).split())
        for key in [key for key in element.attrib if key.startswith("data-")]:
            del element.attrib[key]
        for key, value in _style(element.tag, classes).items():
            element.attrib.setdefault(key, value)
    root[:] = [
        element for element in root if element.get("stroke-opacity") != "0"
    ]  # lines that show only when highlighted
    _, _, across, down = root.attrib["viewBox"].split()
    if background == "white":
        behind = 1 if root[0].tag == "title" else 0  # the title comes first
        root.insert(behind, ElementTree.Element("rect", {"width": across, "height": down, "fill": _palette()["card"]}))
    if width is not None:
        across, down = f"{width:.6g}{unit}", f"{width * float(down) / float(across):.2f}{unit}"
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "width": across, "height": down}
    return ElementTree.tostring(root, encoding="unicode")


def _style(tag: str, classes: set[str]) -> Declarations:
    """The declarations of all rules that match this element (later rules win), with variables resolved."""
    declared: Declarations = {}
    for element, wanted, declarations in _rules():
        if element in ("", tag) and wanted <= classes:
            declared |= declarations
    names = {**_palette(), **{key[2:]: value for key, value in declared.items() if key.startswith("--")}}
    return {key: _resolved(value, names) for key, value in declared.items() if not key.startswith("--")}


def _resolved(value: str, names: Declarations) -> str:
    match = VARIABLE.fullmatch(value)
    return _resolved(names.get(match[1], names["ink"]), names) if match else value


@cache
def _rules() -> list[tuple[str, set[str], Declarations]]:
    """Element, classes and declarations of each rule except those of the palette."""
    rules = []
    sheet = _without_comments()
    for selectors, body in RULE.findall(sheet[sheet.index("text {") :]):
        for selector in selectors.split(","):
            element, *classes = selector.strip().split(".")
            rules.append((element, set(classes), _declarations(body)))
    return rules


@cache
def _palette() -> Declarations:
    """The colours for paper: the light theme, with the overrides of class `paper`."""
    light, paper = RULE.findall(_without_comments())[:2]
    return {key[2:]: value for _, body in (light, paper) for key, value in _declarations(body).items()}


def _without_comments() -> str:
    return re.sub(r"/\*.*?\*/", "", asset("marks.css"), flags=re.DOTALL)


def _declarations(body: str) -> Declarations:
    pairs = (line.partition(":") for line in body.split(";") if line.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}
