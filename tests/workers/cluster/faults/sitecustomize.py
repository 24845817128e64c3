"""Loaded by every process of a run under test: breaks the part that CARAVAN_TEST_FAULT names."""

import importlib.abc
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

# part -> module, class, method that raises when it is called for the second time
BREAKS = {
    "trainer": ("engine.training.trainer", "Trainer", "update"),
    "rollout": ("engine.rollout.torch_sampler", "TorchSampler", "step"),
    "pool": ("engine.pool.pool", "Pool", "finish"),
}


def _break(module: ModuleType, owner: str, method: str, where: str) -> None:
    whole = getattr(getattr(module, owner), method)
    calls = 0

    def broken(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ValueError(f"broken on purpose: {where}")
        return whole(*arguments, **named)

    setattr(getattr(module, owner), method, broken)


class _Breaker(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, where: str) -> None:
        self._where = where
        self._module, self._owner, self._method = BREAKS[where]

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self._module:
            return None
        sys.meta_path.remove(self)
        found = importlib.machinery.PathFinder.find_spec(name, path)
        assert found is not None and found.loader is not None
        self._inner = found.loader
        found.loader = self
        return found

    def create_module(self, spec: Any) -> Any:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        _break(module, self._owner, self._method, self._where)


if where := os.environ.get("CARAVAN_TEST_FAULT"):
    sys.meta_path.insert(0, _Breaker(where))
