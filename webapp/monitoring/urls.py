"""Pages of monitoring."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
