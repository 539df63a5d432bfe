"""Names that no agent may take, in every spelling that looks the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewhall.errors import InvalidInput
from crewhall.families.work.agent.rules_name import ALIKE, RESERVED, refuse_reserved_name

TAKEN = [
    *RESERVED,
    "Operator",
    " HALL ",
    "0perator",
    "HA11",
    "haII",
    "ha||",
    "(operator)",
    "operator:",
    "op\u200berator",
    "hall\u2800",
    "\u202erotarepo\u202c",
    "\uff4f\uff50\uff45\uff52\uff41\uff54\uff4f\uff52",
    "\u00f2p\u00e9r\u00e4t\u00f3r",
    "ope\u0337rator",
    "\U0001d428perator",
    "\u24d7\u24d0\u24db\u24db",
    "h\u0430ll",
    "\u043e\u0440\u0435\u0433\u0430\u0442\u043e\u0433",
    "\u04bb\u0430\u04cf\u04cf",
    "\u041d\u0410LL",
    "\u1d0f\u1d18\u1d07\u0280\u1d00\u1d1b\u1d0f\u0280",
    "operat\u0626r",
    "ha\u0140l",
    "oper\u00b7ator",
    "o.p.e.r.a.t.o.r",
    "\u24aa\u24ab\u24a0\u24ad\u249c\u24af\u24aa\u24ad",
    "\u00f8\u2c63\u0247\u024d\u2c65\u0167\u00f8\u024d",
    *("".join(chr(first + ord(one) - ord("a")) for one in "operator") for first in (0x1F150, 0x1F170, 0x1F1E6)),
    "ag\u02cdboss",
    "ag_boss",
    "Ag_000000000000",
    "\u0430\u0261_boss",
    "wf_0123456789ab",
    "jr\uff3f0123456789ab",
    "tk_\u0660\u0661\u06623456789ab",
]
FREE = [
    *(
        "ada",
        "Ada Lovelace",
        "coordinator",
        "operators",
        "co-operator",
        "hallo",
        "hail",
        "shall",
        "my_agent",
        "agent 1",
    ),
    *("work-1-a1", "wf_1", "qa_reviewer", "\u0410\u043d\u043d\u0430", "\u041e\u043b\u044c\u0433\u0430"),
    *("\u8001\u738b", "\u0623\u0645\u0644", "J\u00f6rg", "?"),
]


@pytest.mark.parametrize("name", TAKEN, ids=ascii)
def test_what_reads_like_the_halls_own_or_like_an_id_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="reads like") as refused:
        refuse_reserved_name(name)
    assert refused.value.message.isascii(), "the reader sees which characters it has"


@pytest.mark.parametrize("name", FREE, ids=ascii)
def test_other_names_are_free(name: str) -> None:
    refuse_reserved_name(name)


unseen = st.sampled_from(["", "", " ", "\u200b", "\u2060", "\u0301", "\u3164", "\ufe0f"])


@given(st.data(), st.sampled_from(RESERVED))
def test_no_mix_of_alike_letters_and_unseen_marks_passes(data: st.DataObject, word: str) -> None:
    letters = [data.draw(st.sampled_from([one, one.upper(), *ALIKE[one]])) + data.draw(unseen) for one in word]
    with pytest.raises(InvalidInput):
        refuse_reserved_name("".join(letters))


@given(st.text(max_size=200))
def test_any_text_is_judged(name: str) -> None:
    try:
        refuse_reserved_name(name)
    except InvalidInput as refused:
        assert refused.hint
