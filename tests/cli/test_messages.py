"""The catalogues of translations: what is marked, the two formats, and ours being complete."""

import gettext
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import messages
from cli.po import Catalogue, Message, compile_mo, read_po, write_po

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\x04\r"), min_size=1, max_size=30)


def test_it_finds_what_templates_mark() -> None:
    source = """{% load i18n %}{% translate "Runs" %} {{ _("Team") }}
    {% include "x.html" with title=_("Nothing yet") text=_('It "waits".') only %}
    {% blocktranslate with name=run.name %}Clone of {{ name }}{% endblocktranslate %}
    {% blocktranslate count n=rows %}{{ n }} row{% plural %}{{ n }} rows{% endblocktranslate %}
    {% translate "95% of them" %}"""
    assert messages.marked_in_template(source) == [
        Message("Runs"),
        Message("Team"),
        Message("Nothing yet"),
        Message('It "waits".'),
        Message("Clone of %(name)s"),
        Message("%(n)s row", "%(n)s rows"),
        Message("95%% of them"),
    ]


def test_it_finds_what_python_marks() -> None:
    source = """
_("One " "sentence.")
ngettext("%(n)s run", "%(n)s runs", done) % {"n": done}
pgettext("state", "lost")
gettext_lazy("Loss")
gettext(variable), other("not this")
"""
    assert messages.marked_in_python(source) == [
        Message("One sentence."),
        Message("%(n)s run", "%(n)s runs"),
        Message("lost", context="state"),
        Message("Loss"),
    ]


def test_it_finds_what_scripts_mark() -> None:
    source = 'h("p", {}, t("It \\"waits\\"."), t("%(n)s left", { n })); set("x"); point.t("no");'
    assert messages.marked_in_script(source) == [Message('It "waits".'), Message("%(n)s left")]


@given(st.dictionaries(TEXT, TEXT, max_size=6), TEXT, TEXT)
def test_gettext_reads_what_was_compiled(pairs: dict[str, str], one: str, many: str) -> None:
    entries = {Message(text): [translated] for text, translated in pairs.items()}
    entries[Message("%(n)s run", "%(n)s runs")] = [many]
    entries[Message("lost", context="state")] = [one]
    catalogue = Catalogue("# ours", messages.METADATA, entries)
    read = gettext.GNUTranslations(io.BytesIO(compile_mo(catalogue)))
    for text, translated in pairs.items():
        assert read.gettext(text) == translated
    assert read.ngettext("%(n)s run", "%(n)s runs", 2) == many
    assert read.pgettext("state", "lost") == one


@given(st.dictionaries(TEXT, st.one_of(st.just(""), TEXT), max_size=6))
def test_a_catalogue_is_read_as_it_was_written(pairs: dict[str, str]) -> None:
    entries = {Message(text): [translated] for text, translated in pairs.items()}
    entries[Message("a", "b")] = ["c"]
    entries[Message("a", context="d")] = ["e"]
    catalogue = Catalogue("# ours", messages.METADATA, entries)
    assert read_po(write_po(catalogue)) == catalogue


def test_a_line_of_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="not a line of a catalogue"):
        read_po('msgid ""\nmsgstr ""\n\nhello')


def test_it_names_what_is_missing_and_what_does_not_agree() -> None:
    catalogue = Catalogue(
        entries={
            Message("Runs"): [""],
            Message("Join %(name)s"): ["加入 %(nam)s"],
            Message("Run <code>x</code>"): ["执行 x"],
            Message("%(n)s run", "%(n)s runs"): ["%(n)s 个运行"],
            Message("%(n)s run", "all %(n)s runs"): ["%(n)s 个运行"],
        }
    )
    assert messages.problems(catalogue) == [
        "marked twice, with another plural: '%(n)s run'",
        "not translated: 'Runs'",
        "other placeholders: 'Join %(name)s': '加入 %(nam)s'",
        "other placeholders: 'Run <code>x</code>': '执行 x'",
    ]


def test_what_is_new_is_added_and_what_is_gone_is_dropped() -> None:
    old = Catalogue("# ours", "", {Message("Runs"): ["运行"], Message("Gone"): ["没了"]})
    new = messages.updated(old, [Message("New"), Message("Runs")])
    assert (new.head, new.entries) == ("# ours", {Message("New"): [""], Message("Runs"): ["运行"]})


@pytest.mark.parametrize("domain", ["django", "djangojs"])
def test_every_marked_text_is_translated_and_compiled(domain: str) -> None:
    source = messages.FOLDER / f"{domain}.po"
    catalogue = messages.updated(read_po(source.read_text()), messages.marked()[domain])
    assert messages.problems(catalogue) == []
    assert write_po(catalogue) == source.read_text()
    assert compile_mo(catalogue) == source.with_suffix(".mo").read_bytes()
