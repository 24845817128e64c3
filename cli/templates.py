"""Compiles every template of the pages, so that none has a wrong tag, filter or parent."""

import sys
from pathlib import Path

import django
from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template

FOLDER = Path(__file__).resolve().parents[1] / "frontend" / "templates"


def main() -> None:
    django.setup()
    problems = []
    for path in sorted(FOLDER.rglob("*.html")):
        name = str(path.relative_to(FOLDER))
        try:
            get_template(name)
        except (TemplateSyntaxError, TemplateDoesNotExist) as error:
            problems.append(f"{name}: {type(error).__name__}: {error}")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
