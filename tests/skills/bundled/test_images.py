"""Pictures: details, changed copies, overviews."""

from __future__ import annotations

import pytest
from PIL import Image

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


@pytest.fixture
def picture(workspace: Workspace) -> Script:
    photo = Image.new("RGB", (400, 200), "red")
    exif = photo.getexif()
    exif[0x010F], exif[0x0110], exif[0x0112] = "Acme", "One", 6  # taken with the camera on its side
    exif.get_ifd(0x8769)[0x9003] = "2030:05:14 10:00:00"
    exif.get_ifd(0x8825).update({1: "S", 2: (33.0, 55.0, 12.0), 3: "E", 4: (18.0, 25.0, 12.0)})
    photo.save(workspace.folder / "photo.jpg", exif=exif)
    Image.new("RGBA", (50, 50), (0, 0, 255, 0)).save(workspace.folder / "clear.png")
    return script("images", "picture.py", workspace, libraries=True)


def test_details_name_camera_time_and_position(picture: Script) -> None:
    found = picture.json("info", "photo.jpg")
    assert (found["width"], found["height"], found["format"], found["camera"]) == (400, 200, "JPEG", "Acme One")
    assert (found["time"], found["position"]) == ("2030:05:14 10:00:00", "-33.92, 18.42")


def test_a_copy_is_turned_and_tells_nothing_about_the_place(picture: Script, workspace: Workspace) -> None:
    assert picture.json("convert", "photo.jpg", "small.webp", "--max", 100)["height"] == 100
    found = picture.json("info", "small.webp")
    assert (found["width"], found["position"], found["camera"]) == (50, None, "")
    picture.run("convert", "photo.jpg", "kept.jpg", "--keep-metadata")
    assert picture.json("info", "kept.jpg")["camera"] == "Acme One"
    with Image.open(workspace.folder / "kept.jpg") as kept:
        assert kept.size == (200, 400)


def test_parts_sizes_and_turns(picture: Script) -> None:
    made = picture.json("convert", "photo.jpg", "part.png", "--crop", "0,0,100,50", "--rotate", 90, "--grey")
    assert (made["width"], made["height"]) == (50, 100)
    assert picture.json("convert", "photo.jpg", "exact.png", "--size", "30x20")["height"] == 20


def test_what_is_transparent_becomes_white_where_the_format_has_none(picture: Script, workspace: Workspace) -> None:
    picture.run("convert", "clear.png", "clear.jpg")
    with Image.open(workspace.folder / "clear.jpg") as made:
        assert made.getpixel((5, 5)) == (255, 255, 255)


def test_an_overview_shows_all(picture: Script) -> None:
    made = picture.json("sheet", "photo.jpg", "clear.png", "photo.jpg", "--out", "all.png")
    assert (made["pictures"], made["width"]) == (3, 640)


def test_bad_input_is_refused(picture: Script, workspace: Workspace) -> None:
    workspace.write("text.png", "hello")
    assert "not a picture" in picture.fail("info", "text.png")
    assert "cannot read nowhere.png" in picture.fail("info", "nowhere.png")
    assert "exists already" in picture.fail("convert", "photo.jpg", "clear.png")
    assert "not inside the picture" in picture.fail("convert", "photo.jpg", "x.png", "--crop", "0,0,900,10")
    assert "write 100x100" in picture.fail("convert", "photo.jpg", "x.png", "--size", "big")
    assert "cannot write x.xyz" in picture.fail("convert", "photo.jpg", "x.xyz")


def test_without_the_library_the_message_says_how_to_get_it(workspace: Workspace) -> None:
    assert "start the script with `uv run" in script("images", "picture.py", workspace).fail("info", "x.png")
