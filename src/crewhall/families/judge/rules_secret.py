"""
Secrets in texts, told by their looks or by the name before them; what goes to Claude or comes back has a note instead.

    token = "ghp_…"     ──▶     token = "[secret: GitHub token, line 12]"

What nobody could tell from an ordinary word stays as it is: this is a net, and no wall. And no more than the secret is
taken out: neither a line that says BEGIN PRIVATE KEY nor a name such as `token_url` hides from the judge what follows.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

TOKENS = (
    ("hall token", r"ch_[a-z]+_[\w-]{43,}"),
    ("Anthropic key", r"sk-ant-[\w-]{20,}"),
    ("GitHub token", r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"),
    ("GitLab token", r"gl(?:pat|ptt|dt|rt|rtr|cbt|ft|soat|oas|ffct|imt|agent|wt)-[\w.-]{20,}|GR1348941[\w-]{20,}"),
    ("OpenAI key", r"sk-[\w-]{32,}"),
    ("AI service key", r"(?:gsk_|xai-|pplx-|r8_|nvapi-|fw_|api_org_|lsv2_(?:pt|sk)_)[\w-]{30,}"),
    ("Hugging Face token", r"hf_[A-Za-z0-9]{30,}"),
    ("AWS key", r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])|ABSK[A-Za-z0-9+/]{100,}={0,2}"),
    ("Google key", r"AIza[\w-]{35,}|ya29\.[\w.-]{20,}|GOCSPX-[\w-]{20,}|1//0[\w-]{30,}"),
    ("Azure key", r"\w[\w~.]{2}\dQ~[\w~.-]{31,}|(?:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{40,}={0,2}"),
    ("Slack token", r"(?:xox[abceoprs]|xapp|xwfp)[.-][\w.-]{10,}|https://hooks\.slack\.com/[a-z]{5,20}/[\w/]{20,}"),
    ("Discord token", r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}"),
    ("Discord token", r"https://discord(?:app)?\.com/api/webhooks/\d{5,25}/[\w-]{30,}"),
    ("Telegram token", r"\d{8,10}:AA[\w-]{32,}"),
    ("Stripe key", r"[rs]k_(?:live|test|prod)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,}"),
    ("Twilio key", r"SK[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("mail service key", r"SG\.[\w-]{20,24}\.[\w-]{39,}|xkeysib-[\w-]{60,}|key-[0-9a-f]{32}|[0-9a-f]{32}-us\d{1,2}\b"),
    ("npm token", r"npm_[A-Za-z0-9]{36,}"),
    ("PyPI token", r"pypi-[\w-]{50,}"),
    ("registry token", r"rubygems_[0-9a-f]{48,}|dckr_[po]at_[\w-]{20,}|AKCp[A-Za-z0-9]{60,}"),
    ("Atlassian token", r"AT(?:ATT3|CTT3|BB)[\w=-]{30,}"),
    ("Grafana token", r"glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}|glc_[A-Za-z0-9+/=]{32,}"),
    ("vault token", r"hv[sbr]\.[\w-]{24,}|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}|dp\.[a-z]{2,5}\.[A-Za-z0-9]{40,}"),
    ("cloud token", r"do[opr]_v1_[0-9a-f]{64}|dapi[0-9a-f]{32}|pul-[0-9a-f]{40}|HRKU-[\w-]{30,}"),
    ("cloud token", r"(?:fo1|fm[12][ar]?|nfp|sbp|rnd)_[\w+/=,-]{30,}|pscale_[a-z]+_[\w.-]{32,}|tskey-\w+-[\w-]{20,}"),
    ("shop token", r"shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{32,}|sq0[a-z]{3}-[\w-]{22,}|EAAA[\w-]{60,}"),
    ("tool token", r"lin_(?:api|oauth)_\w{32,}|ntn_\w{40,}|figd_[\w-]{40,}|pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    ("tool token", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}|NRAK-[A-Z0-9]{27}|ops_eyJ[\w-]{40,}|sntry[su]_[\w+/=-]{40,}"),
    ("tool token", r"secret_[A-Za-z0-9]{43}(?![A-Za-z0-9])"),
    ("private key", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    ("web token", r"(?:(?<![\w-])|(?<=\\[nrt]))eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
)
WEAK = {"OpenAI key", "AI service key", "Hugging Face token", "PyPI token", "Slack token", "cloud token"}
# What is right before a token: no letter or digit, unless they are the end of a line in a string.
EDGE = r"(?=[A-Za-z0-9])(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
ANY = "|".join(f"(?P<k{number}>{pattern})" for number, (_, pattern) in enumerate(TOKENS))
TOKEN = f"{EDGE}(?:{ANY})[A-Za-z0-9]*+"

# A key's own lines, as strings and comments have them too; a program that names its first line has none. No line that
# does something looks like that: it would be long, have digits, and neither brackets nor another sign behind it.
BETWEEN = r"(?:\s|\\{1,4}+[nr]?+|[\"'] ?\.(?=\s)|[\"'+,|>#*/]){0,60}+"
HEADER = (
    r"(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|Subject|X-[A-Za-z-]{1,40}): ?"
    r"[\w ,.:/@-]{0,200}+(?:\((?:GNU/Linux|Darwin|MingW32|MacOS X)\))?"
)
BASE64, DIGIT, NO_CALL = "[A-Za-z0-9+/=]", r"(?=[A-Za-z+/=]{0,76}\d)", r"(?![(\[{`.:;&$])"
KEY = (
    r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    rf"(?>{BETWEEN}{HEADER}){{0,8}}+{BETWEEN}{DIGIT}{BASE64}{{40,}}+{NO_CALL}"
    rf"(?>{BETWEEN}{DIGIT}{BASE64}{{20,}}+{NO_CALL})*+"
    rf"(?:(?>{BETWEEN}{BASE64}{{1,76}}+){{0,2}}+{BETWEEN}-{{4,5}} ?END [A-Z0-9 ]{{0,40}}-{{4,5}})?"
)
PUTTY = (
    rf"\bPrivate-Lines: ?\d{{1,4}}(?P<it>(?:(?:\r?\n{DIGIT}{BASE64}{{64}}){{1,200}}(?:\r?\n{BASE64}{{1,63}})?"
    rf"|\r?\n{DIGIT}{BASE64}{{40,63}})(?=\r?\n|\Z)(?:\r?\nPrivate-MAC: ?\w+)?)"
)

# A name that says so, and what it is given.
WORD = (
    r"(?P<word>(?i:(?<!etc/)passw(?:or)?d(?!less)|passphrase|pwd|secret(?!ar)|token(?!iz)|credential"
    r"|_auth(?![a-z])|(?:api|access|private|auth|account|encryption|signing)[_-]?key))"
)
QUOTE = r"\\{0,2}[\"'`]"
QUOTED = (
    rf"{WORD}[\w-]{{0,30}}+[\\\"'`\]]{{0,4}}+\s{{0,5}}+(?::[ \t]{{0,3}}[\w.\[\]| ]{{1,40}}?)?(?:[:!]?={{1,3}}>?|:)"
    rf"\s{{0,5}}+[A-Za-z@]{{0,2}}{QUOTE}(?P<it>[^\s\"'`]{{8,500}}?)(?={QUOTE})"
)
BARE = (
    rf"^[ \t+>-]{{0,40}}+(?:(?i:export|set|env|arg)[ \t]{{1,5}}+)?(?P<name>[\w./:@-]{{0,100}}?{WORD}[\w.-]{{0,30}}+)"
    r"[ \t]{0,5}[:=][ \t]{0,5}(?P<it>[^\s\"'`$(){}\[\]<>,;]{8,500}+)(?=[ \t]{0,40}+(?:\r?$|#))"
)
XML = rf"<[\w.:-]{{0,40}}?{WORD}[\w.-]{{0,30}}+>(?P<it>[^\s<>\"'`{{}}$]{{8,500}}+)(?=</)"
FLAG = rf"(?:(?<![\w-])--|[?&])[\w.-]{{0,40}}?{WORD}[\w-]{{0,20}}+[= ](?P<it>[^\s&\"'`#$<>{{}}\[\](),;]{{8,500}}+)"
# Up to the last @ before a host: there may be others in the name and in the password.
ADDRESS = r"(?<=://)[^\s/:\"'`;|&()$<>]{0,100}+:(?P<it>[^\s/\"'`;|&()$<>]{3,200})(?=@[\w.\[-])"
# What a program is told to keep, or takes if nobody says otherwise: define('DB_PASSWORD', '…'), getenv("KEY", "…").
CALLED = (
    rf"(?P<verb>(?i:define|set|put|get|env))\w{{0,20}}+\s?+\(\s{{0,5}}+{QUOTE}[\w.-]{{0,40}}?{WORD}[\w.-]{{0,30}}+{QUOTE}"
    rf"\s{{0,5}}+,\s{{0,5}}+{QUOTE}(?P<it>[^\s\"'`]{{8,500}}?)(?={QUOTE})"
)
# Names that nothing but a secret is given to, and nothing may follow: client_secret = "…", export API_KEY=…
STRONG = (
    r"(?P<word>(?i:(?:client|app|consumer|shared|webhook|session|jwt)[_-]?secret|api[_-]?(?:key|token|secret)"
    r"|(?:access|auth|refresh)[_-]?token|secret[_-]?(?:access[_-]?)?key))(?![\w-])"
)
GIVEN = (
    rf"{STRONG}[\\\"'`\]]{{0,4}}+\s{{0,5}}+(?::[ \t]{{0,3}}[\w.\[\]| ]{{1,40}}?)?(?:[:!]?={{1,3}}>?|:)"
    rf"\s{{0,5}}+{QUOTE}(?P<it>[^\s\"'`]{{8,500}}?)(?={QUOTE})"
)
EXPORT = (
    rf"(?<![\w-])(?i:export|setenv|setx|set|env)[ \t]{{1,5}}+[A-Za-z0-9_]{{0,60}}?{STRONG}"
    r"(?:=|[ \t]{1,5}+)(?P<it>[^\s\"'`$(){}\[\]<>,;&|]{8,500}+)"
)
AWS = r"(?<![\w/+=.-])[A-Za-z0-9/+]{40}(?![\w/+=-])"
SCHEME = r"(?i:bearer|basic|token|apikey)[ \t]{1,5}+"
HEADED = rf"(?i:\bauthorization)[\"'`\]]{{0,2}}\s{{0,5}}[:=,]\s{{0,5}}[\"'`]?{SCHEME}(?P<it>[\w+/.=~:-]{{8,}}+)"
BEARER = rf"\b{SCHEME}(?P<it>[\w+/.=~-]{{20,}}+)"

# What is given to such a name, and is no secret.
PLAIN = re.compile(
    r"[$<{%\[*].*|(?>.*?\{[\w.]*+\}).*"  # a place that something else fills
    r"|\w+://[^@]*|[.~]{0,2}/[a-z0-9_./-]*"  # an address without a password, a path
    r"|sha\d{1,3}[:-].*|[\^~<>=v]{0,2}\d+(?:\.\d+){1,4}[\w.+-]{0,30}"  # a hash, a version
    r"|(.)\1+|[\W\d_]+|[A-Za-z_]+(?:\.[A-Za-z_]+)+"  # xxxxxxxx, a number, settings.api_key
)
MENTION = re.compile(
    r"(?=.*(?i:pass|secret|token|key|credential|your|example|change|redacted))[A-Za-z_.:/-]+(?:(?<=[_.-])\d{1,3})?"
)
WORDS = re.compile(r"[A-Za-z]*\d{0,3}(?:[_.:/-][A-Za-z]*\d{0,3})*")
TECHNICAL = re.compile(r"(?i:oauth2|sha\d{1,3}|base\d\d|utf-?8|md5|x509|ed25519|[rhe]s256|ipv[46]|k8s|s3|v\d{1,2})")
WORDLIKE = re.compile(r"[A-Z]?[a-z]{2,}|\d{4,}")
CODE = re.compile(r"[(){}\[\]<>$]|\A/|://")
PROGRAM = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")  # settings.oauth2_token


@dataclass(frozen=True)
class Net:
    """What to look for; `it` in the pattern is the secret, unless all of it is. What it is not is told by a rule."""

    kind: str
    pattern: re.Pattern[str]
    is_secret: Callable[[re.Match[str]], bool]

    def catch(self, match: re.Match[str]) -> tuple[str, int, int]:
        """What was found: its kind, where it begins and ends."""
        start, end = match.span("it" if "it" in self.pattern.groupindex else 0)
        return self.kind or TOKENS[int(str(match.lastgroup)[1:])][0], start, end


def _is_token(match: re.Match[str]) -> bool:
    """A token has a digit, where names could begin like it."""
    return TOKENS[int(str(match.lastgroup)[1:])][0] not in WEAK or _has_digit(match[0])


def _is_odd(match: re.Match[str]) -> bool:
    """What is given looks made up by a machine, or by somebody who was told to use digits."""
    left = TECHNICAL.sub("", match["it"])
    return _is_given(match) and _has_digit(left) and not WORDS.fullmatch(left)


def _is_given(match: re.Match[str]) -> bool:
    return not PLAIN.fullmatch(match["it"]) and not MENTION.fullmatch(match["it"])


def _is_named(match: re.Match[str]) -> bool:
    """A password may be a word; a token is odd."""
    return _is_given(match) if match["word"].lower().startswith("pass") else _is_odd(match)


def _is_default(match: re.Match[str]) -> bool:
    """A constant may be any password; what other calls are given has to be odd."""
    return _is_odd(match) or (match["verb"].lower() == "define" and (_is_named(match) or _is_strong(match)))


def _is_strong(match: re.Match[str]) -> bool:
    """Given to a name that is a secret's: anything with a digit, or one long run of letters; no hint, path or name."""
    text = match["it"]
    without_digits = re.sub(r"\d", "", text)
    if not _is_given(match) or MENTION.fullmatch(without_digits) or PROGRAM.fullmatch(text) or CODE.search(text):
        return False
    return _has_digit(TECHNICAL.sub("", text)) or re.fullmatch(r"[A-Za-z]{16,}", text) is not None


def _is_random(match: re.Match[str]) -> bool:
    """Small and capital letters and digits, as from a die: few of them make up words."""
    text = match[0]
    is_mixed = _has_digit(text) and not text.isupper() and not text.islower()
    return is_mixed and sum(len(word) for word in WORDLIKE.findall(text)) < 0.6 * len(text)


def _is_set(match: re.Match[str]) -> bool:
    """Without quotes it may be a name in the program, but not where settings are: those are in capitals."""
    return _is_named(match) if match["name"].isupper() else _is_odd(match) and not PROGRAM.fullmatch(match["it"])


def _has_digit(text: str) -> bool:
    return any(character in "0123456789" for character in text)


def _net(kind: str, pattern: str, is_secret: Callable[[re.Match[str]], bool] = lambda _: True) -> Net:
    return Net(kind, re.compile(pattern, re.ASCII | re.MULTILINE), is_secret)


NETS = (
    _net("private key", KEY),
    _net("private key", PUTTY),
    _net("", TOKEN, _is_token),
    _net("password", ADDRESS, _is_given),
    _net("authorization", HEADED, _is_given),
    _net("authorization", BEARER, _is_odd),
    _net("secret", QUOTED, _is_named),
    _net("secret", BARE, _is_set),
    _net("secret", XML, _is_named),
    _net("secret", FLAG, _is_odd),
    _net("secret", CALLED, _is_default),
    _net("secret", GIVEN, _is_strong),
    _net("secret", EXPORT, _is_strong),
    _net("AWS key", AWS, _is_random),
)


def without_secrets(text: str) -> str:
    """The text with a note in place of each secret; the lines behind it keep their numbers."""
    for net in NETS:
        text = _replace_secrets(text, net)
    return text


def _replace_secrets(text: str, net: Net) -> str:
    """The text with a note in place of each secret that one net catches."""
    parts: list[str] = []
    end = line = 0
    for match in filter(net.is_secret, net.pattern.finditer(text)):
        kind, start, behind = net.catch(match)
        line += text.count("\n", end, start)
        newlines = text.count("\n", start, behind)
        parts += [text[end:start], f"[secret: {kind}, line {line + 1}]", "\n" * newlines]
        line, end = line + newlines, behind
    return "".join([*parts, text[end:]])
