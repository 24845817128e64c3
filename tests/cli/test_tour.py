"""The tour shows exactly the pictures that its script takes."""

import re

from cli import tour


def shown() -> set[str]:
    return set(re.findall(r"\]\(images/tour/([\w-]+\.png)\)", tour.PAGE.read_text()))


def test_it_shows_every_picture_and_no_other() -> None:
    assert shown() == set(tour.names())


def test_every_picture_is_there_and_small() -> None:
    sizes = {name: (tour.FOLDER / name).stat().st_size for name in tour.names()}
    assert {name: size for name, size in sizes.items() if size > 300_000} == {}


def test_it_passes_through_every_place_of_the_navigation() -> None:
    nav = (tour.CHECKOUT / "frontend/templates/components/nav.html").read_text()
    places = set(re.findall(r'data-place="(\w+)"', nav))
    elsewhere = {"inbox": "home", "rewards": "rewards", "datasets": "dataset"}
    missing = {place for place in places if elsewhere.get(place, place) not in tour.PICTURES}
    assert missing == set()
