"""Finding runs, which other calls build on. Part of `caravan.client.Client`."""

import shlex
from typing import Any
from urllib.parse import quote

from caravan.errors import RefusedError
from caravan.http import Http


class RunCalls:
    http: Http

    def runs(
        self,
        q: str = "",
        *,
        sort: str = "-created",
        project: str | None = None,
        archived: bool = False,
        limit: int = 50,
    ) -> list[dict[str, Any]]:
        """Runs by the filter language (`status:running success>0.5 tag:baseline`), newest first."""
        query = {"q": q, "sort": sort, "project": project, "archived": archived}
        return list(self.http.paged("/runs", limit, query))

    def run_id(self, run: str) -> str:
        """The id of a run that is named by id or by name. Raises RefusedError."""
        if run.startswith("run_"):
            return quote(run, safe="")
        words = shlex.quote(f"name:{run}")
        named = self.runs(words) + self.runs(words, archived=True)
        found = [one for one in named if one["name"] == run]
        if not found:
            raise RefusedError(f"There is no run named {run!r}: `caravan runs` lists them.")
        if len(found) > 1:
            ids = ", ".join(one["id"] for one in found[:5])
            raise RefusedError(f"Several runs are named {run!r}: use an id, as {ids}.")
        return str(found[0]["id"])
