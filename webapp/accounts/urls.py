"""Pages of accounts."""

from django.urls import path

from webapp.accounts.pages import catalogue, design, saved_views, signin, team, webhooks

urlpatterns = [
    path("", signin.home, name="home"),
    path("login/", signin.sign_in, name="login"),
    path("login/<str:secret>/", signin.use_login_link, name="login-link"),
    path("logout/", signin.sign_out, name="logout"),
    path("invitation/<str:secret>/", signin.accept_invitation, name="invitation"),
    path("account/", signin.account, name="account"),
    path("account/theme", signin.choose_theme, name="theme"),
    path("design/", design.design, name="design"),
    path("i18n/catalogue.js", catalogue.catalogue, name="jsi18n"),
    path("projects/<str:pk>/team/", team.team, name="team"),
    path("projects/<str:pk>/team/invite", team.invite, name="team_invite"),
    path("projects/<str:pk>/team/limit", team.set_limit, name="team_limit"),
    path("projects/<str:pk>/team/members/<int:member>", team.change_member, name="member"),
    path("projects/<str:pk>/team/tokens", team.create_token, name="token_create"),
    path("projects/<str:pk>/team/tokens/<str:token>", team.revoke_token, name="token_revoke"),
    path("projects/<str:pk>/audit/", team.audit, name="audit"),
    path("projects/<str:pk>/webhooks/", webhooks.listing, name="webhooks"),
    path("webhooks/<str:pk>/", webhooks.one, name="webhook"),
    path("webhooks/<str:pk>/change", webhooks.change, name="webhook_change"),
    path("projects/<str:pk>/views/new", saved_views.save, name="view_save"),
    path("views/<str:pk>/change", saved_views.change, name="view_change"),
    path("invitations/<str:pk>/withdraw", team.withdraw, name="invitation_withdraw"),
    path("projects/new", team.create_project, name="project_create"),
]
