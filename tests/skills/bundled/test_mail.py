"""Mail over IMAP and SMTP, against servers on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest

from tests.skills.bundled.mail_server import MailServer, run_mail_server
from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


def make_message(subject: str, *, html: bool = False) -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Ada <ada@example.org>", "me@example.org", subject
    message["Message-ID"], message["Date"] = "<1@example.org>", "Tue, 14 May 2030 10:00:00 +0000"
    if html:
        message.set_content('<p>Hi <a href="https://evil.example">your bank</a></p><script>x</script>', subtype="html")
    else:
        message.set_content("Grüße,\nAda\n")
        message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="../../offer.pdf")
    return message.as_bytes(policy=policy.SMTP)


@pytest.fixture
def server() -> Iterator[MailServer]:
    with run_mail_server() as server:
        server.messages = {4711: make_message("Angebot für Sie"), 4712: make_message("Hello", html=True)}
        server.seen.add(4712)
        yield server


@pytest.fixture
def mail(workspace: Workspace, server: MailServer) -> Script:
    return script("mail", "mail.py", Workspace(workspace.folder, account(server)))


def account(server: MailServer, **changed: str) -> dict[str, str]:
    return {
        "MAIL_IMAP": f"127.0.0.1:{server.imap_port}",
        "MAIL_SMTP": f"127.0.0.1:{server.smtp_port}",
        "MAIL_USER": "me@example.org",
        "MAIL_PASSWORD": "secret",
        "MAIL_SECURITY": "none",
        **changed,
    }


def test_messages_are_found_newest_first(mail: Script, server: MailServer) -> None:
    found = mail.json("search")
    assert [(each["number"], each["from"], each["subject"]) for each in found] == [
        (4712, "Ada <ada@example.org>", "Hello"),
        (4711, "Ada <ada@example.org>", "Angebot für Sie"),
    ]
    mail.run("search", "--unseen", "--from", 'a"b', "--since", "2030-05-01", "--limit", 5)
    assert 'UID SEARCH FROM "a\\"b" SINCE 1-May-2030 UNSEEN' in server.told
    mail.run("search", "--text", "Grüße")
    assert 'UID SEARCH CHARSET UTF-8 TEXT "Grüße"' in server.told


def test_reading_marks_nothing_and_stores_attachments_safely(
    mail: Script, server: MailServer, workspace: Workspace
) -> None:
    found = mail.json("read", 4711, "--save", "files")
    assert found["text"] == "Grüße,\nAda"
    assert found["attachments"] == [
        {"name": "offer.pdf", "type": "application/pdf", "bytes": 4, "file": "files/offer.pdf"}
    ]
    assert workspace.read("files/offer.pdf") == "%PDF"
    assert mail.json("read", 4711, "--save", "files")["attachments"][0]["file"] == "files/offer-2.pdf"
    assert 4711 not in server.seen
    assert all("BODY.PEEK" in line for line in server.told if "FETCH" in line)


def test_where_links_lead_is_shown(mail: Script) -> None:
    assert mail.json("read", 4712)["text"] == "Hi <https://evil.example> your bank"


def test_a_draft_answers_a_message_and_sends_nothing(mail: Script, server: MailServer, workspace: Workspace) -> None:
    workspace.write("offer.txt", "Yes, please.\n")
    workspace.write("terms.txt", "x")
    arguments = ("--to", "ada@example.org", "--body", "offer.txt", "--reply-to", 4711, "--attach", "terms.txt")
    assert mail.json("draft", *arguments)["folder"] == "Entwürfe"
    draft = message_from_bytes(server.appended["Entw&APw-rfe"], policy=policy.default)
    assert (draft["subject"], draft["in-reply-to"], draft["from"]) == (
        "Re: Angebot für Sie",
        "<1@example.org>",
        "me@example.org",
    )
    assert server.sent == []


def test_sending_hands_the_message_to_all_recipients(mail: Script, server: MailServer) -> None:
    mail.run("send", "--to", "a@example.org", "--cc", "b@example.org", "--subject", "Hi", "--body", "-", stdin="Text\n")
    ((recipients, data),) = server.sent
    assert recipients == ["a@example.org", "b@example.org"]
    assert b"Subject: Hi\r\n" in data


def test_messages_are_marked_and_moved_and_never_deleted(mail: Script, server: MailServer) -> None:
    mail.run("mark", 4711, "--seen")
    mail.run("move", 4711, "Archive")
    assert server.seen == {4711, 4712}
    assert server.moved == {4711: "Archive"}
    assert mail.json("folders") == ["INBOX", "Entwürfe", "Archive"]


def test_failures_say_what_to_do(mail: Script, server: MailServer, workspace: Workspace) -> None:
    def fail(*arguments: object, **changed: str) -> str:
        other = Workspace(workspace.folder, account(server, **changed))
        return script("mail", "mail.py", other).fail(*arguments)

    assert "MAIL_USER is not set" in fail("search", MAIL_USER="")
    assert "does not accept the account" in fail("search", MAIL_PASSWORD="wrong")
    assert "only with a server on this machine" in fail("search", MAIL_IMAP="imap.example.org")
    assert "cannot reach 127.0.0.1" in fail("search", MAIL_IMAP="127.0.0.1:9")
    assert "cannot be opened" in fail("search", "--folder", "Nothing")
    assert "there is no message 1 " in fail("read", 1)
    workspace.write("x", "x")
    assert "'ada' is not an address" in fail("draft", "--to", "ada", "--body", "x")
    assert "at least one recipient" in fail("send", "--body", "x")
    assert "did not take the message" in fail("send", "--to", "a@b", "--body", "x", MAIL_SMTP="127.0.0.1:9")
