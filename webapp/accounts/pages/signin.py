"""Signing in and out, invitations, and one's own account."""

import json

from django.contrib import messages
from django.contrib.auth import login, logout
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from webapp.accounts import access, services
from webapp.accounts.models import User
from webapp.pages import field_errors, last_project
from webapp.problems import RefusedError

BACKEND = "django.contrib.auth.backends.ModelBackend"


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    if request.user.is_authenticated:
        return redirect("home")
    after = request.POST.get("next") or request.GET.get("next", "")
    email, problem, status = request.POST.get("email", ""), "", 200
    if request.method == "POST":
        try:
            user = services.sign_in(request, email, request.POST.get("password", ""))
            login(request, user, BACKEND)
            return redirect(_safe(request, after))
        except RefusedError as refused:
            problem, status = refused.detail, refused.status
    context = {"email": email, "problem": problem, "next": after}
    return render(request, "accounts/login.html", context, status=status)


def _safe(request: HttpRequest, url: str) -> str:
    own = url_has_allowed_host_and_scheme(
        url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return url if own else reverse("home")


@never_cache
@require_http_methods(["GET", "POST"])
def use_login_link(request: HttpRequest, secret: str) -> HttpResponse:
    """A GET only shows a button, so that a link preview does not use the link up."""
    if request.method == "POST":
        try:
            login(request, services.use_login_link(secret), BACKEND)
            return redirect("home")
        except RefusedError as refused:
            context = {"problem": refused.detail, "email": "", "next": ""}
            return render(request, "accounts/login.html", context, status=refused.status)
    return render(request, "accounts/login_link.html")


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def accept_invitation(request: HttpRequest, secret: str) -> HttpResponse:
    try:
        invitation = services.find_invitation(secret)
    except RefusedError as refused:
        return render(
            request, "accounts/invitation.html", {"gone": refused.detail}, status=refused.status
        )
    errors, status = {}, 200
    name = request.POST.get("display_name", "")
    if request.method == "POST":
        password, address = request.POST.get("password", ""), services.address_of(request)
        try:
            user = services.accept_invitation(secret, password, name, address)
            login(request, user, BACKEND)
            request.session["project"] = invitation.project_id
            return redirect("home")
        except RefusedError as refused:
            errors, status = field_errors(refused), refused.status
    context = {
        "invitation": invitation,
        "has_account": User.objects.filter(email__iexact=invitation.email).exists(),
        "errors": errors,
        "display_name": name,
    }
    return render(request, "accounts/invitation.html", context, status=status)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("login")


@login_required
def home(request: HttpRequest) -> HttpResponse:
    """To the home of the project that was open last."""
    if not access.actor_of(request).roles():
        return render(request, "accounts/no_project.html")
    return redirect("project_home", last_project(request).pk)


@login_required
@require_POST
def choose_theme(request: HttpRequest) -> HttpResponse:
    try:
        theme = json.loads(request.body).get("theme")
    except (ValueError, AttributeError):
        theme = None
    try:
        services.set_theme(access.actor_of(request).user, str(theme))
    except RefusedError as refused:
        return JsonResponse({"detail": refused.detail}, status=refused.status)
    return JsonResponse({"theme": theme})


@login_required
@sensitive_post_parameters("old_password", "password")
@require_http_methods(["GET", "POST"])
def account(request: HttpRequest) -> HttpResponse:
    user = access.actor_of(request).user
    errors: dict[str, str] = {}
    if request.method == "POST":
        try:
            if "password" in request.POST:
                old, new = request.POST.get("old_password", ""), request.POST["password"]
                services.set_password(user, old, new)
                login(request, user, BACKEND)  # the other sessions of this account end
                messages.success(request, _("The password was changed."))
            else:
                services.set_display_name(user, request.POST.get("display_name", ""))
                messages.success(request, _("Saved."))
            return redirect("account")
        except RefusedError as refused:
            errors = field_errors(refused)
    context = {"errors": errors, "has_password": user.has_usable_password()}
    return render(request, "accounts/account.html", context, status=422 if errors else 200)
