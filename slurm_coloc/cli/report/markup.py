# SPDX-License-Identifier: Apache-2.0
"""Elements of a page, by the standard library's ElementTree, which escapes every text."""

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree as ET

from slurm_coloc.core.text import printable

Child = ET.Element | str | None

COLOURS = 6  # of lines of one picture

# Colours are chosen for both backgrounds; the figures stand beside every picture as text.
STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8883; --share: #2a7fb8; --whole: #c98a1b;
  --bad: #c2423b; --good: #2f9257; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.about, figcaption, .note { opacity: .75; font-size: .9rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: .75rem; }
.fact { border: 1px solid var(--line); border-radius: .4rem; padding: .6rem .8rem; }
.fact b { display: block; font-size: 1.4rem; }
figure { margin: 0; } svg { width: 100%; height: auto; display: block; }
svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
svg .axis { stroke: var(--line); fill: none; } svg .grid { stroke: var(--soft); fill: none; }
@media (max-width: 40rem) { svg text { font-size: 16px; } }
.share { fill: var(--share); } .whole { fill: var(--whole); } .bad { fill: var(--bad); }
.good { fill: var(--good); } svg .held { stroke: var(--share); fill: none; stroke-width: 1.5; }
.c0 { --c: #2a7fb8; } .c1 { --c: #c98a1b; } .c2 { --c: #2f9257; } .c3 { --c: #c2423b; }
.c4 { --c: #8456b8; } .c5 { --c: #7a7a7a; } .key[class*=" c"] { background: var(--c); }
svg path[class^=c] { stroke: var(--c); fill: none; stroke-width: 1.5; }
svg .active { stroke: var(--good); fill: none; stroke-width: 1.5; }
svg .bound { stroke: var(--bad); fill: none; stroke-dasharray: 4 3; }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; }
.key.share { background: var(--share); } .key.whole { background: var(--whole); }
.key.bad { background: var(--bad); } .key.good { background: var(--good); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--soft); }
th { font-weight: 600; } .n { text-align: right; font-variant-numeric: tabular-nums; }
"""


def element(tag: str, *children: Child, **attributes: object) -> ET.Element:
    """An element; ``class_`` is class, an underscore inside a name a dash. A child that is None is
    left out."""
    names = {
        name.rstrip("_").replace("_", "-"): printable(str(value))
        for name, value in attributes.items()
    }
    made = ET.Element(tag, names)
    last: ET.Element | None = None
    for child in children:
        if isinstance(child, ET.Element):
            made.append(child)
            last = child
        elif child is not None:
            text = printable(child)
            if last is None:
                made.text = (made.text or "") + text
            else:
                last.tail = (last.tail or "") + text
    return made


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> ET.Element:
    """A table that scrolls where it is too wide; a head that ends in > is a column of numbers."""
    right = [head.endswith(">") for head in heads]

    def line(tag: str, cells: Iterable[object]) -> ET.Element:
        return element(
            "tr",
            *(
                element(tag, str(cell), **({"class_": "n"} if number else {}))
                for cell, number in zip(cells, right, strict=True)
            ),
        )

    head = element("thead", line("th", [head.rstrip(">") for head in heads]))
    body = element("tbody", *(line("td", row) for row in rows))
    return element("div", element("table", head, body), class_="wide")


def fact(value: str, text: str) -> ET.Element:
    """A figure and what it is."""
    return element("div", element("b", value), text, class_="fact")


def facts(*found: ET.Element) -> ET.Element:
    """Figures side by side."""
    return element("div", *found, class_="facts")


def figure(picture: ET.Element, *caption: Child) -> ET.Element:
    """A picture and what it shows."""
    return element("figure", picture, element("figcaption", *caption))


def key(kind: str, text: str) -> list[Child]:
    """A colour and what it stands for."""
    return [element("span", class_=f"key {kind}"), text]


def page(title: str, *body: Child) -> str:
    """The whole file."""
    style = element("style")
    style.text = STYLE
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        style,
    )
    html = element("html", head, element("body", element("h1", title), *body), lang="en")
    return "<!DOCTYPE html>\n" + ET.tostring(html, encoding="unicode", method="html") + "\n"
