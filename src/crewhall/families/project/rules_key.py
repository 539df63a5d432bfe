"""
Private keys in texts, known by their first words and by what is right behind them; what only names them is none.

    -----BEGIN … PRIVATE KEY-----     OpenSSL, OpenSSH, PGP; also one line of a string, in XML, in a URL, in a comment
    ---- BEGIN … PRIVATE KEY ----     SSH2            PuTTY-User-Key-File-3: … Encryption:     PuTTY
    "kty": … "d": "…"                 JSON Web Key    AGE-SECRET-KEY-1…                        age
    PrivateKey = …                    WireGuard       untrusted comment: … secret key          minisign, signify

The same bytes written in another way, such as in base64 or in a picture, are not known.
"""

import re
from bisect import bisect_left

KEY_BYTES = 8192  # that tell a key, at the most
NEAR = 4096  # bytes between two members of one JSON object
# Ends of lines, also as strings, XML, HTML, URLs and mails have them; a tab in place of a blank.
GAP = rb"\s|\\{1,4}+(?:[nr]|u000[ad])?+|&#(?:x0{0,4}[ad]|0{0,4}1[03]);|</?[a-z]{1,6} ?/?>|%0[ad]|=0[ad]|=(?=\r?\n)"
BASE64 = rb"[a-z0-9+/]"
HEADER = rb"(?:proc-type|dek-info|version|comment|hash|charset|key-info|content-domain|x-[a-z0-9-]{1,40}): "
BLANK = rb"(?:[ \t+]|%20)"
KEY = re.compile(  # in small letters; the second form of what follows is in comments, and in strings put together
    rb"-----begin%(blank)b(?:[a-z0-9]{1,20}+%(blank)b){0,4}private%(blank)bkey(?:%(blank)bblock)?-----(?:"
    rb"(?:%(gap)b){0,500}+(?:%(base64)b{16}|%(header)b)"
    rb"|(?:%(gap)b|[\"'`+,.;#*/>|-]){0,100}(?:%(base64)b{40}|proc-type: ))"
    rb"|---- begin [a-z0-9 ]{0,40}private key ----(?:%(gap)b){0,500}+(?:%(base64)b{16}|[a-z][a-z-]{0,40}: )"
    rb"|putty-user-key-file-\d: ?[\w@.-]{1,60}(?:%(gap)b){1,100}+encryption:"
    % {b"gap": GAP, b"blank": BLANK, b"base64": BASE64, b"header": HEADER}
)
SHORT = re.compile(
    rb"AGE-SECRET-KEY-1[0-9A-Z]{58}|\bPrivateKey[ \t]{0,10}=[ \t]{0,10}[A-Za-z0-9+/]{43}="
    rb"|untrusted comment: [^\r\n]{0,100}secret key\r?\n[A-Za-z0-9+/]{40}"
)
MEMBER = re.compile(rb'\\{0,4}"[dk]\\{0,4}"\s{0,20}:\s{0,20}\\{0,4}"[A-Za-z0-9_-]{22}')  # of a JSON Web Key
TYPE = re.compile(b"kty")
# Looked for first, which is quick; the first in small letters.
KEY_WORDS = (b"-begin", b"- begin", b"putty-user-key-file")
SHORT_WORDS = (b"AGE-SECRET-KEY-1", b"PrivateKey", b"untrusted comment: ")


def has_key(text: bytes) -> bool:
    """Whether there is a private key in it."""
    lower = text.lower()
    if any(words in lower for words in KEY_WORDS) and KEY.search(lower):
        return True
    if any(words in text for words in SHORT_WORDS) and SHORT.search(text):
        return True
    types = [found.start() for found in TYPE.finditer(text)]
    return bool(types) and any(_is_near(types, found.start()) for found in MEMBER.finditer(text))


def _is_near(places: list[int], place: int) -> bool:
    """Whether one of these, in order, is near a place."""
    index = bisect_left(places, place - NEAR)
    return index < len(places) and places[index] < place + NEAR
