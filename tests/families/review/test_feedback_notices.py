"""A coder is told of feedback once: by a notice, unless its conversation gets the text itself."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.families.crew.conftest import Site
from tests.families.review.conftest import Loop
from tests.families.work.workflows import sql


@pytest.mark.slow
@pytest.mark.parametrize(("messages", "notices"), [("inbox", 1), ("claude", 0)])
def test_feedback_is_told_by_a_notice_where_no_conversation_has_it(
    make_site: Callable[..., Site],
    tmp_path: Path,
    messages: str,
    notices: int,
) -> None:
    command = ["python3", str(tmp_path / "program.py"), "{prompt}", "{prompt_file}"]
    loop = Loop(make_site(crew__runtimes={"custom": {"command": command, "messages": messages}}))
    loop.send(loop.request())
    (sent,) = loop.by(loop.coder, "message_list")["messages"]
    told = sql(loop.site.hub, "SELECT subject, kind FROM notice")
    assert told == [{"subject": sent["id"], "kind": "message"}] * notices
