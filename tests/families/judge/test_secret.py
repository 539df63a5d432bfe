"""Secrets are taken out and named, and nothing else is: what the judge can't see, nobody has judged."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crewhall.families.judge.rules_secret import TOKENS, without_secrets
from tests.sizes import size


def letters_and_digits(length: int) -> str:
    """Letters and digits as a machine makes them up."""
    return ("aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY" * 20)[:length]


def figures(length: int) -> str:
    return ("0a1b2c3d4e5f6789" * 20)[:length]


# Put together here, so that no scanner of this repository takes them for real ones.
BARE = {
    "hall token": [
        "ch_operator_" + letters_and_digits(43),
        "ch_agent_" + letters_and_digits(43),
        "ch_link_" + letters_and_digits(43),
    ],
    "Anthropic key": ["sk-" + "ant-api03-" + letters_and_digits(90)],
    "GitHub token": ["gh" + f"{kind}_" + letters_and_digits(36) for kind in "pousr"]
    + ["github" + "_pat_" + letters_and_digits(82)],
    "GitLab token": [
        "gl" + "pat-" + letters_and_digits(20),
        "gl" + "soat-" + letters_and_digits(20),
        "GR" + "1348941" + letters_and_digits(20),
    ],
    "OpenAI key": [
        "sk-" + letters_and_digits(48),
        "sk-" + "proj-" + letters_and_digits(60),
        "sk-" + "or-v1-" + figures(64),
    ],
    "AI service key": [
        "gsk" + "_" + letters_and_digits(52),
        "xai" + "-" + letters_and_digits(80),
        "pplx" + "-" + letters_and_digits(48),
    ],
    "Hugging Face token": ["hf" + "_" + letters_and_digits(34)],
    "AWS key": ["AK" + "IA" + "A2B3C4D5" * 2, "AS" + "IA" + "A2B3C4D5" * 2, "AB" + "SK" + letters_and_digits(110)],
    "Google key": [
        "AI" + "za" + letters_and_digits(35),
        "ya" + "29." + letters_and_digits(60),
        "GOCSPX" + "-" + letters_and_digits(28),
    ],
    "Azure key": ["abc8" + "Q~" + letters_and_digits(34), "Account" + "Key=" + letters_and_digits(86) + "=="],
    "Slack token": ["xox" + "b-123456789012-" + letters_and_digits(24), "xapp" + "-1-" + letters_and_digits(30)],
    "Discord token": ["M" + letters_and_digits(23) + ".Gab1cd." + letters_and_digits(27)],
    "Telegram token": ["123456789:" + "AA" + letters_and_digits(33)],
    "Stripe key": [
        "sk" + "_live_" + letters_and_digits(24),
        "rk" + "_test_" + letters_and_digits(24),
        "wh" + "sec_" + letters_and_digits(32),
    ],
    "Twilio key": ["S" + "K" + figures(32)],
    "mail service key": [
        "S" + "G." + letters_and_digits(22) + "." + letters_and_digits(43),
        "key" + "-" + figures(32),
        figures(32) + "-us12",
    ],
    "npm token": ["npm" + "_" + letters_and_digits(36)],
    "PyPI token": ["pypi" + "-AgEIcHlwaS5vcmc" + letters_and_digits(60)],
    "registry token": ["rubygems" + "_" + figures(48), "dckr" + "_pat_" + letters_and_digits(27)],
    "Atlassian token": ["ATA" + "TT3" + letters_and_digits(180), "AT" + "BB" + letters_and_digits(32)],
    "Grafana token": ["gl" + "sa_" + letters_and_digits(32) + "_" + figures(8)],
    "vault token": [
        "hv" + "s." + letters_and_digits(90),
        letters_and_digits(14) + ".atlas" + "v1." + letters_and_digits(67),
        "dp" + ".pt." + letters_and_digits(43),
    ],
    "cloud token": ["do" + "p_v1_" + figures(64), "dapi" + figures(32), "ts" + "key-auth-" + letters_and_digits(30)],
    "shop token": ["shp" + "at_" + figures(32), "sq0" + "csp-" + letters_and_digits(43)],
    "tool token": [
        "lin" + "_api_" + letters_and_digits(40),
        "PMAK" + "-" + figures(24) + "-" + figures(34),
        "ntn" + "_" + letters_and_digits(46),
    ],
    "private key": ["AGE-SECRET" + "-KEY-1" + "Q2W3" * 14 + "Q2"],
    "web token": ["eyJ" + letters_and_digits(20) + "." + "eyJ" + letters_and_digits(40) + "." + letters_and_digits(43)],
}
KEY_LINES = "\n".join([letters_and_digits(64), letters_and_digits(64), "Zz9="])
NAMED = {
    "password": ["postgres://ada:{}@db.example/x", "redis://:{}@cache", "https://x-token:{}@git.example/a.git"],
    "authorization": ["Authorization: Bearer {}", "'Authorization': 'Basic {}'", "curl -H 'authorization: token {}'"],
    "secret": [
        'password = "{}"',
        "password: str = '{}'",
        'if 1: db_password="{}"',
        '{{"api_key": "{}"}}',
        'const accessToken: string = "{}";',
        "os.environ['TOKEN'] = '{}'",
        '{{\\"client_secret\\": \\"{}\\"}}',
        "'password' => '{}',",
        'token := "{}"',
        'if password == "{}":',
        "DB_PASSWORD={}",
        "export API_KEY={}",
        "  - SECRET_KEY={}",
        "aws_secret_access_key = {}",
        "spring.datasource.password={}",
        "password: {}",
        "password: {}  # for tests",
        "//registry.example/:_authToken={}",
        "+TOKEN={}",
        "<password>{}</password>",
        "deploy --token={}",
        "deploy --api-key {} now",
        "https://hall.example/?access_token={}&page=1",
    ],
}


@pytest.mark.parametrize(("kind", "secret"), [(kind, one) for kind, all_of_it in BARE.items() for one in all_of_it])
def test_what_is_known_by_its_looks_is_taken_out_wherever_it_is(kind: str, secret: str) -> None:
    before = "MY_" if kind != "web token" else "MY="
    for around in ('a = "{}"', "{}", "see {}.", "\\n{}\\n", before + "{}", "({})", "été{}é", "{}\n{}"):
        text = "first\n" + around.format(secret, secret) + "\nlast"
        shown = without_secrets(text)
        assert secret not in shown and f"[secret: {kind}, line 2]" in shown, around
        assert len(shown.split("\n")) == len(text.split("\n")) and shown.endswith("\nlast")


def test_every_kind_that_is_known_has_a_test() -> None:
    assert {kind for kind, _ in TOKENS} == BARE.keys()


@pytest.mark.parametrize(("kind", "form"), [(kind, form) for kind, forms in NAMED.items() for form in forms])
def test_what_is_known_by_the_name_before_it_is_taken_out(kind: str, form: str) -> None:
    for secret in ("hunter2horse5", letters_and_digits(40), "p4ss/w0rd+x=="):
        if kind != "password" or "/" not in secret:
            shown = without_secrets("\n\n" + form.format(secret) + "\n")
            assert shown == "\n\n" + form.format(f"[secret: {kind}, line 3]") + "\n"


@pytest.mark.parametrize("form", ['password = "{}"', 'PASSWD="{}"', "DB_PASSWORD={}", "'passphrase': '{}'"])
def test_a_password_may_be_a_word(form: str) -> None:
    assert without_secrets(form.format("correcthorse")) == form.format("[secret: secret, line 1]")


def pem(kind: str = "RSA ", inner: str = KEY_LINES) -> str:
    return f"-----BEGIN {kind}PRIVATE" + f" KEY-----\n{inner}\n-----END {kind}PRIVATE KEY-----"


KEYS = {
    "plain": pem(""),
    "OpenSSH": pem("OPENSSH "),
    "encrypted": pem(inner=f"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n{KEY_LINES}"),
    "PGP": pem("PGP ", f"Version: 2\n\n{KEY_LINES}\n=aB3d").replace(" KEY-", " KEY BLOCK-"),
    "SSH2": pem("SSH2 ").replace("-----", "----").replace("BEGIN", " BEGIN").replace("KEY----", "KEY ----"),
    "indented": pem().replace("\n", "\n        "),
    "in a comment": pem().replace("\n", "\n// "),
    "in strings": pem().replace("\n", '\\n" +\n  "'),
    "in strings of PHP": pem().replace("\n", '\\n" .\n  "'),
    "by GnuPG": pem("PGP ", f"Version: GnuPG v2.0.22 (GNU/Linux)\nComment: https://gnupg.example\n\n{KEY_LINES}"),
    "in JSON": pem().replace("\n", "\\n"),
    "in JSON in JSON": pem().replace("\n", "\\\\n"),
    "Windows": pem().replace("\n", "\r\n"),
    "cut off": pem().partition("\nZz9")[0],
}


@pytest.mark.parametrize("form", KEYS)
def test_a_private_key_is_taken_out_as_a_whole_and_lines_keep_their_numbers(form: str) -> None:
    key = KEYS[form]
    shown = without_secrets(f"one\nkey = '{key}'\nlast = 1\n")
    assert shown == f"one\nkey = '[secret: private key, line 2]{chr(10) * key.count(chr(10))}'\nlast = 1\n"


def test_the_private_lines_of_putty_are_taken_out() -> None:
    head = "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPublic-Lines: 1\nAAAAC3Nz\nPrivate-Lines: 2"
    shown = without_secrets(f"{head}\n{letters_and_digits(64)}\naB3d\nPrivate-MAC: {figures(64)}\nlast\n")
    assert shown == f"{head}[secret: private key, line 5]\n\n\n\nlast\n"


# Nobody hides code behind what only begins like a secret, and the judge sees what code does with one.
STAYS = [
    "-----BEGIN PRIVATE KEY-----\nimport os\nos.system('rm -rf /')\n-----END PRIVATE KEY-----\n",
    'KEY = "-----BEGIN RSA PRIVATE KEY-----"\nif KEY in text:\n    send(text)\n',
    "PuTTY-User-Key-File-3: is how it begins\nos.system(x)\n",
    "# Private-Lines: 9\nreboot\nexit\n",
    "#-----BEGIN PRIVATE KEY-----\nwipeTheWholeDatabaseForEver`everythingThatIsInTheTables`\n",
    f"#-----BEGIN PRIVATE KEY-----\n{letters_and_digits(64)}()\n",
    "#-----BEGIN PRIVATE KEY-----\nwipeTheWholeDatabaseForEver2\n",
    f"#-----BEGIN PRIVATE KEY-----\nVersion: $(rm -rf ~)\n#{letters_and_digits(64)}\n",
    f"//-----BEGIN PRIVATE KEY-----\nComment: wipe(1)\n//{letters_and_digits(64)}\n",
    "x://:;rm$IFS-rf$IFS~;:@",
    "https://a:b1;wipe@h",
    "x://a;wipe|sh:1234@h",
    "password = get_password()",
    "password = getpass.getpass()",
    "password: string",
    "token: Optional[str] = None",
    "secret: SecretStr",
    "    password=user_password",
    "token=settings.oauth2_token",
    'api_key = os.environ["API_KEY_V2"]',
    'password = "user_password"',
    'token = "access_token"',
    '"token": "invalid_token_1"',
    'token_url = "https://evil.example/take?from=1"',
    'secret_path = "/run/secrets/db-1"',
    "TOKEN_FILE=/run/secrets/token1",
    'password="${DB_PASSWORD_1}"',
    'password = f"{user.password1}"',
    "password: {{ vault_password_1 }}",
    'token = "<your token 1>"',
    'token = "xxxxxxxxxxxx"',
    "https://$USER1:$TOKEN1@git.example/a",
    'f"postgres://{user}:{password1}@{host}"',
    "http://localhost:8080/@scope/x1",
    "git@git.example:a/b1.git",
    "Authorization: Bearer ${TOKEN1}",
    "Authorization: Bearer YOUR_ACCESS_TOKEN",
    "basic understanding-of-authorization",
    'tokenizer = "cl100k_base"',
    '"js-tokens": "^4.0.0-beta.1",',
    "secretary = 'miss1moneypenny'",
    "max_tokens: 100000000",
    'fields = ["password", "username1"]',
    "def test_a_token_of_2_is_refused(): ...",
    '"file:///etc/passwd": "NOT_FOUND"',
    "sk-some-long-kebab-case-name-of-a-skeleton-component",
    "xapp-some-kebab-name",
    'id = "123e4567-e89b-12d3-a456-426614174000"',
    f"commit {figures(40)}",
    f'"integrity": "sha512-{letters_and_digits(86)}=="',
    f"    --hash=sha256:{figures(64)} \\",
    f"example.org/token v1.0.2 h1:{letters_and_digits(43)}=",
    f'token_digest = "sha256:{figures(64)}"',
    f"data:image/png;base64,iVBORw0KGgo{letters_and_digits(300)}",
]


@pytest.mark.parametrize("text", STAYS)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert without_secrets(text) == text


PIECES = [*(one for every in BARE.values() for one in every), *KEYS.values(), *STAYS]
PIECES += ["password", "=", ": ", '"', "'", "\n", " ", "Bearer ", "://a:", "@", "TOKEN=", "--", "&", "<token>", "</"]
PIECES += ["[secret: ", "\u2028", "\ud800", "é", "_", "\\n"]


@settings(max_examples=size(30, 100), deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=9), max_size=8).map("".join))
def test_whatever_the_text_lines_stay_and_twice_is_as_once(text: str) -> None:
    shown = without_secrets(text)
    assert shown.count("\n") == text.count("\n")
    assert without_secrets(shown) == shown


HARD = ["-", "\n", " ", ".", '"', "\\", "a", "0a", "eyJ-", "eyJ_", "eyJ" + "a" * 10 + ".", "sk-", "ghp_", "1//0"]
HARD += ["://a:", "password", "password='", "token=", "--token", "?token=", "<password>", "Bearer ", "authorization: "]
HARD += [
    "\\\\n",
    pem("").partition("\n")[0],
    pem().partition("\nZz9")[0] + "\n",
    "Private-Lines: 1\n",
    "export ",
    "export API_KEY=",
    "export API_KEY=a",
    "://a:@b@",
    "://@:",
    "@a",
    "define('password', '",
    "set(",
    "client_secret = 'a",
    "api_key",
    "aB3/",
]


@pytest.mark.parametrize("unit", HARD, ids=lambda unit: repr(unit[:20]))
def test_the_time_grows_with_the_text_and_no_faster(unit: str) -> None:
    assert _least_ratio([unit * (length // len(unit)) for length in (20_000, 40_000)]) < 3.2


def test_a_whole_megabyte_takes_about_twice_as_long_as_half_of_it() -> None:
    halves = [(unit * (35_000 // len(unit) + 1))[:35_000] for unit in HARD]
    assert len("".join(halves) * 2) > 900_000
    assert _least_ratio(["".join(halves), "".join(half * 2 for half in halves)]) < 3.2


def _least_ratio(texts: list[str]) -> float:
    """How many times longer the second takes than the first: twice it should be, and four times is what we fear."""
    least = 9.0
    for _ in range(4):
        half, whole = map(_seconds, texts)
        least = min(least, whole / half)
        if least < 3:
            break
    return least


def _seconds(text: str) -> float:
    began = time.process_time()
    without_secrets(text)
    return time.process_time() - began
