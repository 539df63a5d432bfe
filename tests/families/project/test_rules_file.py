"""Which files are secret, what text bytes are, and which lines of it are asked for."""

import json
import re
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewhall.errors import Forbidden, InvalidInput, LimitExceeded
from crewhall.families.project.rules_file import (
    PIECE,
    WHOLE_BYTES,
    Reading,
    TextPart,
    refuse_large,
    refuse_secret,
    refuse_secret_name,
    refuse_secret_text,
    text_of,
)
from crewhall.families.project.rules_key import KEY_BYTES
from crewhall.families.project.rules_listing import PAGE_BYTES, note_of, page, readable

BODY = "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF8PbnGy0AHB7MbzYLdZ7ZvVy7F7V"
KEY = "-----BEGIN RSA " + f"PRIVATE KEY-----\n{BODY}\n"  # in two, so that nobody takes this file for a key


@pytest.mark.parametrize(
    "path",
    [
        *(".git", ".git/config", "sub/.git/HEAD", "vendor/.git", ".GIT/config", ".Git", "git~1/config", ".git./config"),
        *(".g\u200cit/config", ".git\ufeff", "\uff0egit/config", ".\u0261it/../.git", ".GI\u200dT"),
        *(".env", ".env.local", ".envrc", ".ENV", "deploy/.env.production", ".env.d/prod", "\u200f.env"),
        *(".netrc", "_netrc", ".git-credentials", ".pgpass", "id_rsa", "keys/id_dsa", "id_ecdsa", "id_ed25519"),
        *("id_ed25519_sk", "ID_RSA", "id_rsa/x", ".npmrc", ".pypirc", ".htpasswd"),
        *(".ssh/config", "home/.aws/credentials", ".kube/config", ".gnupg/x", ".crewhall/operator.token"),
    ],
)
def test_what_is_secret_by_its_name_is_refused_and_the_setting_named(path: str) -> None:
    with pytest.raises(Forbidden) as refused:
        refuse_secret_name(path, ())
    assert path in refused.value.message and "project.allow" in refused.value.hint
    refuse_secret_name(path, ("*",))


@pytest.mark.parametrize(
    "path",
    [
        *(".", "a.py", ".gitignore", ".gitattributes", ".github/workflows/ci.yml", "x.git/HEAD", "git", "env"),
        *("id_rsa.pub", "id_ed25519.pub", "id_rsa_test.go", "config.env.js", "src/environment.py", "...", "netrc"),
    ],
)
def test_other_names_are_not_secret(path: str) -> None:
    refuse_secret_name(path, ())


@pytest.mark.parametrize(
    ("path", "allow", "is_allowed"),
    [
        (".env.example", (".env.example",), True),
        ("deploy/.env.example", (".env.example",), True),
        ("deploy/.env.example", ("deploy/*",), True),
        ("deploy/.env", ("x", "deploy/.env"), True),
        (".env", (".env.example",), False),
        ("other/.env", ("deploy/.env",), False),
        (".git/config", (".env*",), False),
        (".git/config", (".git/config",), True),
        (".git/HEAD", (".git/config",), False),
    ],
)
def test_a_setting_lifts_a_refusal_by_name_or_path(path: str, allow: tuple[str, ...], is_allowed: bool) -> None:
    if is_allowed:
        refuse_secret_name(path, allow)
        refuse_secret(path, KEY.encode(), allow)
    else:
        with pytest.raises(Forbidden):
            refuse_secret_name(path, allow)
        with pytest.raises(Forbidden):
            refuse_secret_text(text_of(KEY.encode(), path), path, allow)


@pytest.mark.parametrize(
    ("data", "is_secret"),
    [
        (KEY.encode(), True),
        (f"# notes\n{KEY}".encode(), True),
        (f"\ufeff{KEY}".encode(), True),
        (KEY.encode("utf-16"), True),
        (("é\n" + KEY).encode("latin-1"), True),
        (KEY.replace("RSA ", "").encode(), True),
        (KEY.replace("RSA", "OPENSSH").encode(), True),
        (KEY.replace("RSA ", "").replace("KEY", "KEY BLOCK").replace("\n", "\n\n", 1).encode(), True),
        (KEY.replace("\n", "\r").encode(), True),
        (KEY.replace("\n", "\r\n").encode(), True),
        (KEY.replace("\n", " ").encode(), True),
        (f"it begins with {KEY}".encode(), True),
        (json.dumps({"type": "service_account", "private_key": KEY}).encode(), True),
        (json.dumps({"key": KEY}, indent=2).replace("\\n", "\\\\n").encode(), True),
        (json.dumps({"key": KEY}).replace("\\n", "\\u000a").encode(), True),
        (("key: |\n" + textwrap.indent(KEY, " " * 12)).encode(), True),
        (("key: |\r\n" + textwrap.indent(KEY, "\t")).encode(), True),
        (textwrap.indent(KEY, "# ").encode(), True),
        (textwrap.indent(KEY, "// ").encode(), True),
        (KEY.replace("\n", '\\n" +\n    "').encode(), True),
        (KEY.replace("\n", "\nProc-Type: 4,ENCRYPTED\n", 1).encode(), True),
        (KEY.replace("\n", "\nVersion: GnuPG v2\n\n", 1).encode(), True),
        (b"---- BEGIN SSH2 ENCRYPTED " + b'PRIVATE KEY ----\nComment: "mine"\n', True),
        (b"PuTTY-User-Key-" + b"File-3: ssh-ed25519\r\nEncryption: none\r\n", True),
        *((KEY.replace("\n", gap).encode(), True) for gap in ("&#10;", "&#xA;", "&#x0d;&#x0a;", "<br>", "<br/>\n")),
        *((KEY.replace("\n", "%0A").replace(" ", blank).encode(), True) for blank in ("+", "%20")),
        (KEY.replace("\n", "</p><p>").encode(), True),
        (b"# -----BEGIN RSA " + b"PRIVATE KEY-----\n# Proc-Type: 4,ENCRYPTED\n", True),
        (b"# -----BEGIN RSA " + b"PRIVATE KEY-----\n# Process it.\n", False),
        *((KEY.replace("\n", gap).encode(), True) for gap in ("%0A", "%0D%0A", "=0A", "=0D=0A=\r\n", "\n" * 400)),
        (KEY.replace("\n", "\nX-Made-By: me\n", 1).encode(), True),
        (KEY.replace(" ", "\t").encode(), True),
        (KEY.replace("BEGIN RSA PRIVATE KEY", "begin rsa private key").encode(), True),
        (
            json.dumps(
                {"kty": "RSA", "n": BODY.replace("/", "_") * 11, "e": "AQAB", "d": BODY.replace("/", "-")}
            ).encode(),
            True,
        ),
        (json.dumps({"d": "x" * 43, "kty": "EC", "crv": "P-256"}, indent=2).encode(), True),
        (json.dumps({"key": json.dumps({"k": "x" * 43, "kty": "oct"})}).encode(), True),
        (b"AGE-SECRET-" + b"KEY-1" + b"Q" * 58, True),
        (b"[Interface]\nPrivate" + b"Key = " + BODY.encode()[:43] + b"=\n", True),
        (b"untrusted comment: minisign encrypted " + b"secret key\n" + BODY.encode(), True),
        (json.dumps({"kty": "RSA", "n": BODY * 11, "e": "AQAB"}).encode(), False),
        (json.dumps({"kty": "RSA", "d": "short"}).encode(), False),
        (json.dumps({"d": "x" * 43}).encode(), False),
        (b'{"kty": 1}' + b" " * 9000 + b'{"d": "' + b"x" * 43 + b'"}', False),
        (b"PrivateKey = load_the_private_key_from_where_it_is_kept_safely()", False),
        (b"untrusted comment: minisign public key\n" + BODY.encode(), False),
        (b"-----BEGIN PUBLIC KEY-----\n" + BODY.encode(), False),
        (b"-----BEGIN CERTIFICATE-----\n" + BODY.encode(), False),
        (b"PRIVATE KEY\n" + BODY.encode(), False),
        (f'if "{KEY.splitlines()[0]}" in text:\n    refuse_whatever_it_may_be()'.encode(), False),
        (f'BEGIN = "{KEY.splitlines()[0]}"\nsomeVeryLongNameOfAFunction(BEGIN)'.encode(), False),
        (f"{KEY.splitlines()[0]}\n...\n-----END".encode(), False),
        (f"{KEY.splitlines()[0]}\\n<your key>".encode(), False),
        (f"{KEY.splitlines()[0]}\nMIIEvQ...".encode(), False),
        (b'line.startswith("PuTTY-User-Key-File-3: ")', False),
    ],
)
def test_a_private_key_is_known_by_its_first_words_and_what_follows(data: bytes, is_secret: bool) -> None:
    text = text_of(data, "a.txt")
    if is_secret:
        with pytest.raises(Forbidden, match="private key"):
            refuse_secret_text(text, "a.txt", ())
    else:
        refuse_secret_text(text, "a.txt", ())


@pytest.mark.parametrize(
    ("data", "encoding", "content"),
    [
        (b"", "utf-8", ""),
        (b"plain\r\n", "utf-8", "plain\r\n"),
        ("na\u00efve \U0001f600\n".encode(), "utf-8", "na\u00efve \U0001f600\n"),
        ("\ufeffmarked".encode(), "utf-8-sig", "marked"),
        ("wide\n\u00e9".encode("utf-16"), "utf-16", "wide\n\u00e9"),
        (b"\xfe\xff" + "big\n".encode("utf-16-be"), "utf-16", "big\n"),
        (b"caf\xe9\n", "latin-1", "caf\u00e9\n"),
        (b"x" * (PIECE - 1) + "\u00e9".encode(), "utf-8", "x" * (PIECE - 1) + "\u00e9"),
        (b"x" * PIECE + b"\xc3", "latin-1", "x" * PIECE + "\u00c3"),
    ],
)
def test_bytes_are_text_in_one_of_four_encodings(data: bytes, encoding: str, content: str) -> None:
    text = text_of(data, "a.txt")
    assert text.encoding == encoding
    for size in (1 + len(data) // 500, 3 + len(data) // 500, len(data) + 1):
        assert part_of(data, 0, None, size).content == content


@pytest.mark.parametrize(
    "data",
    [
        *(b"\x7fELF\0", b"text\0", "\ufeffa\0".encode("utf-16-le"), b"\xff\xfea", "\ufeffx".encode("utf-32-le")),
        b"\xff\xfe\x00\xd8",
    ],
)
def test_other_bytes_are_no_text(data: bytes) -> None:
    with pytest.raises(InvalidInput, match=rf"'a.bin' is no text: {len(data)} bytes"):
        text_of(data, "a.bin")


def part_of(data: bytes, offset: int, limit: int | None, size: int = PIECE, most: int = 10 * PIECE) -> TextPart:
    """A part of a file that comes in pieces of this size."""
    reading = Reading("a", offset, limit, most)
    for start in range(0, len(data), size):
        reading.add(data[start : start + size])
    return reading.part()


@pytest.mark.parametrize("data", ["\ufeff", ""])
def test_a_mark_alone_is_an_empty_file(data: str) -> None:
    assert part_of(data.encode(), 0, None) == TextPart("", 0, None)


@pytest.mark.parametrize("size", [1, 7, 64, KEY_BYTES])
@pytest.mark.parametrize("gap", ["\n", "\\n", "\n" + " " * 90, "\\\\u000a" * 99])
def test_a_key_is_known_wherever_pieces_part(size: int, gap: str) -> None:
    for before in (0, 1, KEY_BYTES - 100):
        reading = Reading("a", 0, 1)
        data = ("x" * before + KEY.replace("\n", gap, 1)).encode()
        for start in range(0, len(data), size):
            reading.add(data[start : start + size])
        assert reading.text().has_key, before


def test_what_looks_like_a_key_for_long_takes_no_time() -> None:
    """Whoever writes it can't keep a search busy: it would take years if each gap could be read in two ways."""
    for gap in ("\\\\n", "\\", "/", "\n+", "' "):
        text_of((KEY.splitlines()[0] + gap * 5000 + "!").encode() * 3, "a")


LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=5), max_size=8)


@given(lines=LINES, ended=st.booleans(), size=st.integers(1, 4), piece=st.integers(1, 9), wide=st.booleans())
def test_the_parts_of_a_text_are_the_text(lines: list[str], ended: bool, size: int, piece: int, wide: bool) -> None:
    whole = ("\n".join(lines) + ("\n" if ended and lines else "")).removeprefix("\ufeff")
    pieces = re.findall(r"[^\n]*\n|[^\n]+", whole)
    data, found, offset = whole.encode("utf-16" if wide else "utf-8"), "", 0
    while True:
        part = part_of(data, offset, size, piece)
        assert (part.lines, part.content) == (len(pieces), "".join(pieces[offset : offset + size]))
        found += part.content
        if part.next_offset is None:
            break
        assert part.next_offset == offset + size
        offset = part.next_offset
    assert found == whole


def test_a_line_far_behind_is_found() -> None:
    data = b"".join(b"%07d\n" % number for number in range(50_000))
    assert part_of(data, 49_998, 5) == TextPart("0049998\n0049999\n", 50_000, None)
    assert part_of(data, 20_000, 2).content == "0020000\n0020001\n"
    assert part_of(data, 50_000, 2).content == ""
    with pytest.raises(InvalidInput, match="has 50000 lines, and offset is 50001"):
        part_of(data, 50_001, 1)
    with pytest.raises(LimitExceeded, match="these lines have 1008 bytes, and 1000 are allowed"):
        part_of(data, 0, 126, most=1000)


@pytest.mark.parametrize(
    ("size", "limit", "hint"),
    [
        (1000, None, None),
        (1001, None, "give limit"),
        (1001, 5, None),
        (WHOLE_BYTES, 5, None),
        (WHOLE_BYTES + 1, 5, "smaller"),
        (WHOLE_BYTES + 1, None, "smaller"),
    ],
)
def test_a_large_file_is_given_in_parts_and_a_vast_one_not_at_all(
    size: int, limit: int | None, hint: str | None
) -> None:
    if hint is None:
        refuse_large("a", size, limit, 1000)
        return
    with pytest.raises(LimitExceeded, match=f"'a' has {size} bytes") as refused:
        refuse_large("a", size, limit, 1000)
    assert hint in refused.value.hint


def test_a_page_has_room_for_some_names_and_one_at_least() -> None:
    many = [f"{number:05}" for number in range(3000)]
    assert page(many, 0, 5000) == many[: PAGE_BYTES // 50]
    assert page(many, 10, 3) == many[10:13]
    assert page(many, 2990, 10) == page(many, 2990, 5000) == many[2990:]
    assert page(many, 5000, 10) == []
    long = "n" * PAGE_BYTES
    assert page([long, long], 0, 10) == [long]


def test_a_note_tells_what_is_special() -> None:
    assert note_of(0, 0, 0, None) is None and note_of(0, 5, 1, None) is None
    assert note_of(0, 5, 0, None) == "Git ignores all that is here; include_ignored lists it."
    told = note_of(2, 0, 1, "git is not there")
    assert told == "Git can't tell what it ignores: git is not there. Left out: 2 whose names are not UTF-8."
    assert readable(["a", "\u00e9", "b\udcff"]) == ["a", "\u00e9"]
