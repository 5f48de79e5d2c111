#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = ["pillow>=11"]
# ///
"""Show and change pictures: info, convert, sheet."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 200_000_000
CELL = 320
WITHOUT_ALPHA = frozenset((".jpg", ".jpeg", ".bmp"))


class PictureError(Exception):
    """The request cannot be carried out; the message says why."""


def load(path: Path) -> Image:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise PictureError(f"Pillow is not installed; start the script with `uv run {__file__}`") from None
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    try:
        picture = Image.open(path)
        picture.load()
    except UnidentifiedImageError:
        raise PictureError(f"{path} is not a picture that Pillow can read") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as failure:
        raise PictureError(f"cannot read {path}: {failure}") from failure
    return picture


def degrees(values: Any, side: Any) -> float | None:
    try:
        hours, minutes, seconds = (float(value) for value in values)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    found = hours + minutes / 60 + seconds / 3600
    return round(-found if side in ("S", "W") else found, 6)


def info(options: argparse.Namespace) -> Any:
    picture = load(options.source)
    exif = picture.getexif()
    details, place = exif.get_ifd(0x8769), exif.get_ifd(0x8825)
    latitude, longitude = degrees(place.get(2), place.get(1)), degrees(place.get(4), place.get(3))
    camera = " ".join(str(exif[key]).strip(" \0") for key in (0x010F, 0x0110) if key in exif)
    return {
        "file": str(options.source),
        "format": picture.format,
        "width": picture.width,
        "height": picture.height,
        "mode": picture.mode,
        "frames": getattr(picture, "n_frames", 1),
        "bytes": options.source.stat().st_size,
        "camera": camera,
        "time": str(details.get(0x9003) or exif.get(0x0132) or ""),
        "position": None if latitude is None or longitude is None else f"{latitude}, {longitude}",
    }


def numbers(text: str, count: int, separator: str) -> list[int]:
    try:
        found = [int(part) for part in text.lower().split(separator)]
    except ValueError:
        found = []
    if len(found) != count or min(found) < 0:
        raise PictureError(f"cannot read {text!r}; write {separator.join(['100'] * count)}")
    return found


def change(picture: Image, options: argparse.Namespace) -> Image:
    from PIL import ImageOps

    picture = ImageOps.exif_transpose(picture)
    if options.crop:
        x, y, width, height = numbers(options.crop, 4, ",")
        if not (width and height and x + width <= picture.width and y + height <= picture.height):
            raise PictureError(f"the part {options.crop} is not inside the picture of {picture.width}x{picture.height}")
        picture = picture.crop((x, y, x + width, y + height))
    if options.rotate:
        picture = picture.rotate(-options.rotate, expand=True)
    if options.size:
        width, height = numbers(options.size, 2, "x")
        if not 0 < width * height <= MAX_PIXELS:
            raise PictureError(f"the size {options.size} is empty or too large")
        picture = picture.resize((width, height))
    elif options.max:
        picture.thumbnail((options.max, options.max))
    return ImageOps.grayscale(picture) if options.grey else picture


def save(picture: Image, target: Path, **options: Any) -> None:
    if target.exists():
        raise PictureError(f"{target} exists already; choose another name")
    if target.suffix.lower() in WITHOUT_ALPHA and picture.mode not in ("RGB", "L"):
        from PIL import Image

        ground = Image.new("RGB", picture.size, "white")
        shown = picture.convert("RGBA")
        ground.paste(shown, mask=shown)
        picture = ground
    try:
        picture.save(target, **options)
    except (OSError, ValueError, KeyError) as failure:
        target.unlink(missing_ok=True)
        raise PictureError(f"cannot write {target}: {failure}") from failure


def convert(options: argparse.Namespace) -> Any:
    source = load(options.source)
    changed = change(source, options)
    changed.info.pop("exif", None)
    kept = {"exif": changed.getexif()} if options.keep_metadata else {}
    if not options.keep_metadata:
        changed.getexif().clear()
    save(changed, options.target, quality=options.quality, **kept)
    return {
        "file": str(options.target),
        "width": changed.width,
        "height": changed.height,
        "bytes": options.target.stat().st_size,
    }


def sheet(options: argparse.Namespace) -> Any:
    from PIL import Image, ImageDraw, ImageOps

    pictures = [load(path) for path in options.sources]
    columns = math.ceil(math.sqrt(len(pictures)))
    rows = math.ceil(len(pictures) / columns)
    page = Image.new("RGB", (columns * CELL, rows * (CELL + 20)), "white")
    draw = ImageDraw.Draw(page)
    for number, (path, picture) in enumerate(zip(options.sources, pictures, strict=True)):
        small = ImageOps.exif_transpose(picture).convert("RGB")
        small.thumbnail((CELL - 10, CELL - 10))
        left, top = number % columns * CELL, number // columns * (CELL + 20)
        page.paste(small, (left + 5, top + 5))
        draw.text((left + 5, top + CELL), f"{number + 1}. {path.name}", fill="black")
    save(page, options.out)
    return {"file": str(options.out), "pictures": len(pictures), "width": page.width, "height": page.height}


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    telling = commands.add_parser("info", parents=[shared], help="size, format, camera, time, position")
    telling.add_argument("source", type=Path)
    telling.set_defaults(run=info)
    changing = commands.add_parser("convert", parents=[shared], help="write a changed copy")
    changing.add_argument("source", type=Path)
    changing.add_argument("target", type=Path)
    changing.add_argument("--max", type=int, metavar="PIXELS")
    changing.add_argument("--size", metavar="WxH")
    changing.add_argument("--crop", metavar="X,Y,W,H")
    changing.add_argument("--rotate", type=float, default=0, help="degrees, clockwise")
    changing.add_argument("--quality", type=int, default=85, choices=range(1, 101), metavar="1-100")
    changing.add_argument("--grey", action="store_true")
    changing.add_argument("--keep-metadata", action="store_true")
    changing.set_defaults(run=convert)
    laying = commands.add_parser("sheet", parents=[shared], help="several pictures on one page")
    laying.add_argument("sources", type=Path, nargs="+")
    laying.add_argument("--out", type=Path, required=True)
    laying.set_defaults(run=sheet)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        result = options.run(options)
    except PictureError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    lines = "\n".join(f"{key}: {value}" for key, value in result.items() if value not in ("", None))
    print(json.dumps(result, ensure_ascii=False, indent=2) if options.json else lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
