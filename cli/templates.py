"""Compiles every template of the pages: no wrong tag, filter or parent, no file that is missing."""

import re
import sys
from pathlib import Path

import django
from django.contrib.staticfiles import finders
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
        for file in re.findall(r"{% static '([^']+)' %}", path.read_text()):
            if finders.find(file) is None:
                problems.append(f"{name}: there is no static file {file}")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
