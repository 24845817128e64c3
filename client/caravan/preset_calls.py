"""The calls about recipes and presets. Part of `caravan.client.Client`."""

from typing import Any
from urllib.parse import quote

from caravan.errors import RefusedError
from caravan.http import Http


class PresetCalls:
    http: Http

    def recipes(self) -> list[dict[str, Any]]:
        """{name, description, text} of every recipe of the server."""
        return list(self.http.get("/recipes"))

    def presets(self, project: str | None = None) -> list[dict[str, Any]]:
        """Recipes that a project saved, of all your projects or of one, without their texts."""
        return list(self.http.paged("/presets", None, {"project": project}))

    def preset(self, name: str, project: str | None = None) -> dict[str, Any]:
        """A preset with its text, by its name or id. Raises RefusedError."""
        found = self.presets(project)
        for one in found:
            if one["id"] == name or one["name"].lower() == name.lower():
                return dict(self.http.get(f"/presets/{quote(one['id'], safe='')}"))
        known = ", ".join(one["name"] for one in found) or "none"
        raise RefusedError(f"There is no preset {name!r}; there are: {known}.")

    def save_preset(
        self, name: str, text: str, project: str | None = None, *, replace: bool = False
    ) -> dict[str, Any]:
        """Save a recipe under a name; one that is taken is refused unless it shall be replaced."""
        given = {"name": name, "text": text, "replace": replace, "project": project}
        found: dict[str, Any] = self.http.post("/presets", given)
        return found

    def delete_preset(self, preset: str) -> None:
        """By its id."""
        self.http.delete(f"/presets/{quote(preset, safe='')}")

    def named(self, name: str, project: str | None = None) -> dict[str, str]:
        """How a launch says what it starts from: the recipe of this name, else the preset."""
        if any(one["name"] == name for one in self.recipes()):
            return {"recipe": name}
        presets = self.presets(project)
        known = any(name == one["id"] or name.lower() == one["name"].lower() for one in presets)
        return {"preset": name} if known else {"recipe": name}
