"""Names of config fields, kept so that a search among them reads no spec."""

from django.db import models

from webapp.accounts.models import Project


class ConfigField(models.Model):
    """A field that the spec of some run of the project has, or had before the run was deleted."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="config_fields")
    path = models.CharField(max_length=120)  # as `flat_spec` names it

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "path"], name="field_once")]

    def __str__(self) -> str:
        return self.path
