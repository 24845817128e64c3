"""Mentions and replies: who is told, who is not, and what the inbox shows of it."""

import pytest

from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import Api, person
from webapp.accounts.models import Membership, Project, Role, User
from webapp.problems import RefusedError
from webapp.reviews import services
from webapp.reviews.inbox import inbox
from webapp.reviews.mentions import handles, mentioned
from webapp.reviews.models import Notice
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric


@pytest.fixture
def row(run, store):
    (made,) = store([trajectory()])
    return made


def kinds(user, **wanted):
    return [notice.kind for notice in inbox(user, **wanted).notices.items]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Look, @ann.", ["ann@a.org"]),
        ("@Ann and @bo-2, and @ann again", ["ann@a.org", "bo-2@a.org"]),
        ("@ann@a.org", ["ann@a.org"]),
        ("mail ann@a.org, or write `@ann`", []),
        ("```\n@ann\n```", []),
        ("@annabel @nobody @", []),
        ("(@ann)", ["ann@a.org"]),
        ("@twin", []),
        ("@twin@b.org", ["twin@b.org"]),
        ("@Zoë 你好@ann", ["zoë@a.org"]),
    ],
)
def test_it_knows_whom_a_text_names(text, named):
    people = [
        User(pk=n, email=email)
        for n, email in enumerate(
            ["ann@a.org", "bo-2@a.org", "twin@a.org", "twin@b.org", "zoë@a.org"]
        )
    ]
    assert [one.email for one in mentioned(text, people)] == named


def test_people_who_share_a_name_are_named_by_their_address():
    people = [User(pk=1, email="a@x.org"), User(pk=2, email="A@y.org"), User(pk=3, email="b@x.org")]
    assert set(handles(people)) == {"a@x.org", "a@y.org", "b"}


def test_a_mention_reaches_a_member_once_and_never_its_author(row, owner, editor):
    services.add_comment(row, owner, "@editor and @editor, and me @owner")
    assert kinds(editor) == ["mention"] and kinds(owner) == []


def test_an_outsider_is_not_told(row, owner, outsider):
    services.add_comment(row, owner, "@outsider, look")
    assert not Notice.objects.exists()


def test_an_answer_reaches_everybody_of_the_thread(row, owner, editor, viewer, project):
    third = person("third", project, Role.EDITOR)
    first = services.add_comment(row, owner, "Why?", step=1)
    answer = services.add_comment(row, editor, "Because.", reply_to=first)
    services.add_comment(row, third, "No, @viewer knows.", reply_to=answer)
    assert kinds(owner) == ["reply", "reply"]
    assert kinds(editor) == ["reply"] and kinds(viewer) == ["mention"] and kinds(third) == []
    assert answer.step == 1 and row.comments.get(author=third).reply_to_id == first.pk


def test_an_answer_to_a_comment_on_another_trajectory_is_refused(row, run, store, owner):
    (other,) = store([trajectory(name="t1")])
    comment = services.add_comment(row, owner, "Here")
    with pytest.raises(RefusedError, match="another trajectory"):
        services.add_comment(other, owner, "There", reply_to=comment)


def test_an_edit_tells_only_whom_it_names_anew(row, owner, editor, viewer):
    comment = services.add_comment(row, owner, "@editor")
    services.mark_read(editor, None)
    services.edit_comment(comment, owner, "@editor and @viewer")
    assert inbox(editor).unread == 0 and inbox(viewer).unread == 1


def test_who_lost_access_learns_nothing_more(row, owner, editor, project):
    thread = services.add_comment(row, editor, "Why?")
    services.add_comment(row, owner, "@editor, secret", reply_to=thread)
    Membership.objects.filter(user=editor).delete()
    assert kinds(editor) == []
    services.add_comment(row, owner, "@editor, more", reply_to=thread)
    assert Notice.objects.filter(user=editor).count() == 1, "made while a member"
    assert Api(editor)("GET", "inbox").json()["notices"] == []


def test_deleting_the_first_comment_of_a_thread_keeps_its_answers(row, owner, editor):
    first = services.add_comment(row, owner, "Why?")
    services.add_comment(row, editor, "Because.", reply_to=first)
    services.delete_comment(first, owner, Role.ADMIN)
    (left,) = row.comments.all()
    assert left.text == "Because." and left.reply_to_id is None


def test_it_shows_queues_that_wait_and_disputes_that_one_could_settle(
    row, run, owner, editor, project
):
    third = person("third", project, Role.EDITOR)
    queue = services.create_queue(
        run, owner, name="Q", rubric=Rubric(), wanted=Filter(), size=1, reviews_per_item=2,
        assignees=[owner.pk, editor.pk],
    )  # fmt: skip
    item = queue.items.get()
    assert [one.left for one in inbox(owner).waiting] == [1]
    services.judge(item, owner, choice="accepted")
    assert inbox(owner).waiting == [] and inbox(owner).count == 0
    services.judge(item, editor, choice="rejected")
    assert inbox(owner).disputed == [], "one's own dispute is for others"
    assert [one.disputes for one in inbox(third).disputed] == [1]


def test_the_api_reads_marks_and_keeps_to_the_tokens_project(row, run, owner, editor):
    elsewhere = Project.objects.create(team=run.project.team, name="Elsewhere")
    Membership.objects.create(project=elsewhere, user=editor, role=Role.EDITOR)
    services.add_comment(row, owner, "@editor one", step=1)
    services.add_comment(row, owner, "@editor two")
    api = Api(editor)
    found = api("GET", "inbox").json()
    assert found["unread"] == 2 and [n["text"] for n in found["notices"]] == [
        "@editor two", "@editor one"]  # fmt: skip
    assert found["notices"][1]["step"] == 1 and found["notices"][1]["author"] == "Owner"
    one = {"notices": [found["notices"][0]["id"]]}
    assert api("POST", "inbox/read", one).json() == {"changed": 1}
    assert api("GET", "inbox?unread=true").json()["notices"][0]["text"] == "@editor one"
    assert api("POST", "inbox/read", {**one, "read": False}).json() == {"changed": 1}
    bound = Api(editor, project=elsewhere)
    assert bound("GET", "inbox").json()["notices"] == []
    assert bound("POST", "inbox/read", {}).json() == {"changed": 0}


def test_nobody_reads_or_marks_what_is_anothers(row, owner, editor, as_user):
    services.add_comment(row, owner, "@editor")
    notice = Notice.objects.get()
    assert Api(owner)("POST", "inbox/read", {"notices": [notice.pk]}).json() == {"changed": 0}
    assert as_user(owner).get(f"/notices/{notice.pk}/").status_code == 404
    answer = as_user(editor).get(f"/notices/{notice.pk}/")
    assert answer.url == f"/trajectories/{row.pk}/#comment={notice.comment_id}"
    notice.refresh_from_db()
    assert notice.read_at is not None


def test_the_page_counts_and_shows_what_is_unread(row, owner, editor, as_user):
    services.add_comment(row, owner, "@editor <script>alert(1)</script>")
    client = as_user(editor)
    page = client.get("/inbox/").content.decode()
    assert "&lt;script&gt;alert(1)" in page and "<script>alert(1)" not in page
    assert '<span class="badge badge-accent">1</span>' in page
    assert client.get("/inbox/?cursor=nonsense&show=unread").status_code == 200
    client.post("/inbox/read", {})
    assert 'badge-accent">1<' not in client.get("/inbox/").content.decode()


def test_members_are_offered_by_the_name_that_mentions_them(run, owner, viewer, editor):
    found = Api(viewer)("GET", f"projects/{run.project_id}/people").json()
    assert [one["handle"] for one in found] == ["editor", "owner", "viewer"]
