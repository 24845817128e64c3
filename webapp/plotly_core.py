"""What pages need of Plotly's script: its core, which draws lines; 1.1 MB of the 4.8 MB."""

import re

# The last module of the bundle: it takes the core, registers every other trace with it, exports it.
_LAST = re.compile(
    r"var [\w$]+=(?P<module>[\w$]+)\(\([\w$]+,([\w$]+)\)=>\{var ([\w$]+)=(?P<core>[\w$]+)\(\);"
    r"\3\.register\((?P<others>\[[\w$(),]*\])\);\2\.exports=\3\}\);"
)


def core_of(script: str) -> str:
    """Plotly's whole bundle without the traces that are registered with its core.

    A bundle is a row of modules, each after those that it asks for. So what stands between the core
    and the last module is for the other traces alone, and nobody asks for it where none is
    registered. The browser reads a quarter of the text, and runs an eighth of it.

    Raises ValueError where the script is not such a row.
    """
    last = _LAST.search(script)
    if last is None:
        raise ValueError("Plotly's script does not end with a module that registers its traces.")
    export = re.compile(
        rf"var {re.escape(last['core'])}={re.escape(last['module'])}"
        r"\(\([\w$]+,[\w$]+\)=>\{[^{}]*\}\);"
    )
    core = export.search(script, 0, last.start())
    if core is None:
        raise ValueError("Plotly's script has no module of its core before the one of its traces.")
    start, end = last.span("others")
    return script[: core.end()] + script[last.start() : start] + "[]" + script[end:]
