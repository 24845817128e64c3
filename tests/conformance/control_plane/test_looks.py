"""What people and programs write, however long or hostile, in every page of a real browser."""

from itertools import cycle
from types import SimpleNamespace

import pytest

from tests.browser.conftest import (  # noqa: F401
    aside,
    browser,
    owner,
    played,
    project,
    same_storage,
    visit,
    web,
)
from tests.browser.pages import every_page, furnished
from webapp.accounts.models import Project
from webapp.experiments import services
from webapp.experiments.models import Dataset, Experiment, Preset, RewardScheme, Run
from webapp.experiments.services import Launch
from webapp.reviews.models import Comment, Queue

pytestmark = pytest.mark.browser

LONG = "W" * 118
RIGHT_TO_LEFT = "\N{HEBREW LETTER ALEF}\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe"
PAYLOADS = [
    "<script>window.pwned=1</script>",
    '"><svg onload="window.pwned=1">',
    '<iframe srcdoc="<script>parent.pwned=1</script>">',
    "[x](javascript:window.pwned=1)",
    "![x](https://beacon.example/x.png)",
    '<img src="https://beacon.example/x.png" onerror="window.pwned=1">',
    "$$\\href{javascript:window.pwned=1}{x}$$",
    "=cmd|' /C calc'!A0",
    "\x1b[31mred\x1b]0;title\x07",
    RIGHT_TO_LEFT,
    "</title></script><base href='https://beacon.example/'>",
    "{{ 7|add:7 }}{% debug %}",
]

# Elements that reach beyond the right edge of a page that scrolls sideways.
WIDE = """() => document.scrollingElement.scrollWidth <= innerWidth ? [] :
    [...document.querySelectorAll("body *")]
        .filter((node) => node.checkVisibility() && node.getBoundingClientRect().right > innerWidth)
        .map((node) => node.outerHTML.slice(0, 150))"""


def rename(run: Run, payloads: list[str]) -> None:
    """Every name, tag, label and category of the project is one of the payloads, and every longer
    text is all of them."""
    of_project = {"project": run.project_id}
    one, every = cycle(payloads), "\n\n".join(payloads)
    Run.objects.filter(pk=run.pk).update(
        name=next(one)[:120], notes=every, tags=[p[:40] for p in payloads], phase=next(one)[:40],
        state_reason=every,
    )  # fmt: skip
    for model in (Experiment, Dataset, RewardScheme, Preset, Queue):
        for index, row in enumerate(model.objects.filter(**of_project)):
            row.name = f"{next(one)[:70]}{index}"
            row.save(update_fields=["name"])
    Experiment.objects.filter(**of_project).update(notes=every)
    Queue.objects.filter(**of_project).update(instructions=every)
    Comment.objects.filter(**of_project).update(text=every)
    for row in run.trajectories.all():
        row.prompt, row.category, row.worker = every[:500], next(one)[:40], next(one)[:80]
        row.save(update_fields=["prompt", "category", "worker"])
    Project.objects.filter(pk=run.project_id).update(name=next(one)[:80])


def test_payloads_in_every_name_do_nothing(visit, owner, project, played) -> None:  # noqa: F811
    run = played(steps=8, number=5).run
    world = aside(furnished, project, owner, SimpleNamespace(run=run))
    addresses = aside(every_page, owner, world)
    aside(rename, run, PAYLOADS)
    page = visit(owner, "/account/")
    for name, address in addresses.items():
        page.goto(address)
        page.wait_for_load_state("load")
        assert page.evaluate("window.pwned") is None, name
        assert page.locator("main :is(iframe, base, img[src^=http])").count() == 0, name
        assert page.evaluate("document.baseURI.startsWith(location.origin)"), name


def test_long_names_and_a_large_config_stay_within_the_page(visit, owner, project, played) -> None:  # noqa: F811
    run = played(steps=3, number=5).run
    config = {f"part_{n}": {f"field_{k}": "x" * 80 for k in range(100)} for n in range(100)}
    begun = aside(services.begin_external, project, owner, config, Launch(name=LONG))
    aside(rename, run, [LONG])
    project_path, pages = f"/projects/{project.pk}/", ("", "runs/", "experiments/", "review/")
    addresses = [project_path + name for name in pages]
    addresses += [f"/runs/{begun.run.pk}/", f"/runs/{begun.run.pk}/config", f"/runs/{run.pk}/"]
    page = visit(owner, "/account/")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for address in addresses:
            page.goto(address)
            wide = page.evaluate(WIDE)
            assert not wide, f"{address} is wider than {width} px: {wide[:4]}"
