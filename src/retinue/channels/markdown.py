"""Markdown of agents as styled text, from which each chat service gets its own format.

Lists, tables, headings and rules become text that every service shows the same way. HTML and unknown markup stay as
they were written.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from retinue.core.styled_text import Style, StyledText, join_styled

BULLETS = ("• ", "◦ ", "▪ ")
RULE = "———"
_STYLES = {"strong": Style.BOLD, "em": Style.ITALIC, "s": Style.STRIKE}
_SCHEMES = ("http://", "https://", "mailto:", "tel:", "tg://")
_MAX_COLUMN_CHARS = 40


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("html_inline")


def parse_markdown(text: str) -> StyledText:
    """Return a Markdown text as styled text; never fails, because everything is valid Markdown."""
    tree = SyntaxTreeNode(_parser().parse(text.replace("\x00", "")))
    parsed = _blocks(tree.children)
    return parsed.part(0, len(parsed.text))


def _blocks(nodes: Iterable[SyntaxTreeNode], separator: str = "\n\n", depth: int = 0) -> StyledText:
    return join_styled([each for node in nodes if (each := _block(node, depth)).text.strip()], separator)


def _block(node: SyntaxTreeNode, depth: int) -> StyledText:
    match node.type:
        case "inline":
            return _inline(node.children)
        case "paragraph":
            return _blocks(node.children, depth=depth)
        case "heading":
            return _blocks(node.children).styled(Style.BOLD)
        case "fence" | "code_block":
            return StyledText(node.content.rstrip("\n")).styled(Style.BLOCK, node.info.strip().split(" ")[0])
        case "blockquote":
            return _blocks(node.children, depth=depth).styled(Style.QUOTE)
        case "bullet_list" | "ordered_list":
            return _list(node, depth)
        case "hr":
            return StyledText(RULE)
        case "table":
            return _table(node)
        case _:
            return StyledText(node.content if not node.children else _blocks(node.children).text)


def _list(node: SyntaxTreeNode, depth: int) -> StyledText:
    number = int(node.attrs.get("start", 1))
    items = []
    tight = True
    for place, item in enumerate(node.children):
        mark = f"{number + place}. " if node.type == "ordered_list" else BULLETS[min(depth, len(BULLETS) - 1)]
        tight = tight and all(child.hidden for child in item.children if child.type == "paragraph")
        content = _blocks(item.children, "\n", depth + 1)
        items.append(content.indented(mark, " " * len(mark)) if content.text else StyledText(mark.rstrip()))
    return join_styled(items, "\n" if tight else "\n\n")


def _table(node: SyntaxTreeNode) -> StyledText:
    """Return a table as a block of code with aligned columns, because chats have no tables."""
    rows = [
        [_inline(cell.children[0].children).text.replace("\n", " ") if cell.children else "" for cell in row.children]
        for part in node.children
        for row in part.children
    ]
    count = max(map(len, rows))
    widths = [min(_MAX_COLUMN_CHARS, max(len(row[at]) for row in rows if at < len(row))) for at in range(count)]
    lines = ["  ".join(cell.ljust(widths[at]) for at, cell in enumerate(row)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return StyledText("\n".join(lines)).styled(Style.BLOCK)


def _inline(nodes: Iterable[SyntaxTreeNode]) -> StyledText:
    return join_styled([_inline_node(node) for node in nodes])


def _inline_node(node: SyntaxTreeNode) -> StyledText:
    match node.type:
        case "softbreak" | "hardbreak":
            return StyledText("\n")
        case "code_inline":
            return StyledText(node.content).styled(Style.CODE)
        case "strong" | "em" | "s":
            inner = _inline(node.children)
            return inner.styled(_STYLES[node.type])
        case "link":
            return _link(_inline(node.children), str(node.attrs.get("href", "")))
        case "image":
            return _link(StyledText(node.content or "picture"), str(node.attrs.get("src", "")))
        case _:
            return StyledText(node.content)


def _link(label: StyledText, address: str) -> StyledText:
    """Return a link; an address that no service opens, such as a path, is shown as text."""
    if not address.lower().startswith(_SCHEMES):
        return StyledText(f"{label.text} ({address})") if address and address != label.text else label
    return (label if label.text.strip() else StyledText(address)).styled(Style.LINK, address)
