"""The translations of the scripts, at an address that changes with them: browsers keep it."""

import hashlib
from functools import cache
from pathlib import Path

import django
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.cache import patch_cache_control
from django.utils.translation import get_language, to_locale
from django.views.i18n import JavaScriptCatalog

KEPT_S = 365 * 24 * 3600
_answer = JavaScriptCatalog.as_view(domain="djangojs", packages=[])


@login_required
def catalogue(request: HttpRequest) -> HttpResponseBase:
    """Kept where the address is that of the language in force, which the session decides."""
    answer = _answer(request)
    if request.GET.get("v") == _version(get_language()):
        patch_cache_control(answer, private=True, max_age=KEPT_S, immutable=True)
    return answer


def address() -> str:
    return f"{reverse('jsi18n')}?v={_version(get_language())}"


@cache
def _version(language: str | None) -> str:
    """Of what makes the answer: Django and the translations, which English, the source, lacks."""
    name = to_locale(language or settings.LANGUAGE_CODE)
    files = [Path(at) / name / "LC_MESSAGES/djangojs.mo" for at in settings.LOCALE_PATHS]
    digest = hashlib.sha256(django.__version__.encode())
    for file in files:
        digest.update(file.read_bytes() if file.exists() else b"")
    return f"{name}.{digest.hexdigest()[:12]}"
