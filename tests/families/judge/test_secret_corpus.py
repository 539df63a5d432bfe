"""How many secrets the net catches, and how many harmless lines it takes for one, in a corpus made from a seed."""

import random
import re
import string
from collections.abc import Iterator

import pytest

from crewhall.families.judge.rules_secret import without_secrets

DIE = random.Random(33)
NOTE = re.compile(r"\[secret: [\w ]+, line 1\]")
LETTERS = string.ascii_letters + string.digits
EACH = 40  # secrets in each form


def run(letters: str, length: int) -> str:
    return "".join(DIE.choices(letters, k=length))


def password() -> str:
    """As people make them: two words, a number and a sign."""
    return (
        f"{run(string.ascii_lowercase, 5)}{DIE.choice('!#%+*-_')}{run(string.ascii_letters, 4)}{DIE.randint(10, 9999)}"
    )


def with_at() -> str:
    return f"{run(LETTERS, DIE.randint(2, 9))}@{run(LETTERS + '@', DIE.randint(2, 9))}{DIE.randint(0, 9)}"


def key() -> str:
    return run(LETTERS + "-_", DIE.randint(20, 48))


def long_word() -> str:
    return run(string.ascii_lowercase, DIE.randint(16, 32))


def grouped() -> str:
    return "-".join(run(string.ascii_lowercase, 3) + str(DIE.randint(1, 999)) for _ in range(4))


def aws() -> str:
    return run(LETTERS + "/+", 40)


FORMS = {
    "postgres://ada:{}@db.example:5432/x": (with_at,),
    "DATABASE_URL=mysql://root:{}@localhost/app?charset=utf8": (with_at,),
    "smtp://ada@example.org:{}@mail.example": (with_at, password),
    "define('DB_PASSWORD', '{}');": (password, key, long_word),
    'define( "AUTH_KEY", "{}" );': (password, key, grouped),
    "os.environ.setdefault('API_TOKEN', '{}')": (password, key),
    'os.getenv("DB_PASSWORD", "{}")': (password, key),
    "export API_KEY={}": (key, long_word, grouped),
    "$ export MY_API_KEY={}": (key, long_word, grouped),
    "RUN export CLIENT_SECRET={} && make": (key, long_word, grouped),
    "ssh h 'export API_KEY={}; ./run'": (key, long_word),
    'client_secret = "{}"': (key, long_word, grouped),
    "clientSecret: '{}',": (key, long_word, grouped),
    '"api_key": "{}"': (key, long_word, grouped),
    "{}": (aws,),
    'key = "{}"': (aws,),
    "put {} into the file": (aws,),
    "aws configure: {},": (aws,),
}
NAMES = ("client_secret", "api_key", "access_token", "secret_key", "DB_PASSWORD", "API_KEY")
VALUES = (
    *("<your secret>", "your-client-secret", "YOUR_API_KEY", "changeme-token", "${API_KEY_2}", "{{ api_key_2 }}"),
    *("xxxxxxxxxxxxxxxx", "/run/secrets/key1", "settings.api_key", "example-secret-1", "[secret: secret, line 1]"),
)
HARMLESS = [
    *(f'{name} = "{value}"' for name in NAMES for value in VALUES),
    *(f"export {name.upper()}={value}" for name in NAMES for value in VALUES if " " not in value),
    *(f"define('{name.upper()}', '{value}');" for name in NAMES for value in VALUES),
    *(f"{name} = {call}" for name in NAMES for call in ("get_key()", "config['k1']", 'os.environ["KEY_V2"]', "None")),
    *(
        f'config.{verb}("password", "{word}")'
        for verb in ("get", "set", "setLabel")
        for word in ("required", "Passwort")
    ),
    *('define("PAGE_SIZE", "10000000")', "define('WP_DEBUG_LOG', '/var/log/wp1.log');", "set password_policy strict12"),
    *("export PATH=/usr/local/bin:$PATH", "export TOKEN_FILE=/run/secrets/token1", "env API_KEY_ID=primary-1 make"),
    *('client_secret_name = "oauth-secret-12"', 'api_key_header = "X-Api-Key-2"', 'access_token_url = "/oauth2/token"'),
    *("https://example.org/a:b@2x.png", "http://localhost:8080/@scope/x1", "ssh://git@host.example:2222/a/b1.git"),
    *("git@git.example:a/b1.git", "see https://example.org:443 or mail ada1@example.org", "npm i @scope/pkg@1.2.3"),
    *('f"postgres://{user}:{password1}@{host}"', "postgres://$USER1:$TOKEN1@h", "http://[::1]:3000/@x"),
    *("testThatTheParserReadsUtf8FilesCorrectly", "src/main/java/com/Example2/FooBarBazQuux"),
    *("parseUtf16SurrogatePairsInJsonStringsOk1", "lib/python3/sitepackages/FooBar2/handler1"),
    *(run("0123456789abcdef", 40) for _ in range(40)),
    *(run("0123456789ABCDEF", 40) for _ in range(40)),
    *(f"h1:{run(LETTERS, 43)}=" for _ in range(20)),
    *(f"sha512-{run(LETTERS + '+/', 86)}==" for _ in range(20)),
    *(f"data:image/png;base64,{run(LETTERS + '+/', 300)}" for _ in range(20)),
    *(
        f"{run('0123456789abcdef', 8)}-{run('0123456789abcdef', 4)}-4abc-8def-{run('0123456789abcdef', 12)}"
        for _ in "ab"
    ),
]


def secrets() -> Iterator[tuple[str, str]]:
    """Each form with its secrets."""
    for form, makers in FORMS.items():
        for make in makers:
            yield from ((form, make()) for _ in range(EACH))


def measure() -> tuple[int, int, list[tuple[str, str]], list[str]]:
    """Counts of secrets and harmless lines; secrets of which more or less is taken out, and lines falsely caught."""
    given = list(secrets())
    missed = [
        (form, secret)
        for form, secret in given
        if NOTE.sub("", without_secrets(form.format(secret))) != form.format("")
    ]
    return len(given), len(HARMLESS), missed, [line for line in HARMLESS if without_secrets(line) != line]


def test_the_net_catches_nearly_all_of_a_corpus_and_leaves_harmless_lines_alone() -> None:
    count, harmless, missed, false = measure()
    assert (count, harmless > 250) == (38 * EACH, True)
    assert not false, f"{len(false)} of {harmless} falsely caught: {false[:20]}"
    assert len(missed) <= 0.01 * count, f"{len(missed)} of {count} missed: {missed[:20]}"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("x://a:p1@ss@w0rd@h/x", "x://a:[secret: password, line 1]@h/x"),
        ("x://a@b.c:p1ss@h", "x://a@b.c:[secret: password, line 1]@h"),
        ("define('DB_PASSWORD', 'correcthorse');", "define('DB_PASSWORD', '[secret: secret, line 1]');"),
        ("export API_KEY=abc1-def2; rm -rf ~", "export API_KEY=[secret: secret, line 1]; rm -rf ~"),
        ('client_secret = "qwertzuiopasdfghjk"', 'client_secret = "[secret: secret, line 1]"'),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY", "[secret: AWS key, line 1]"),
    ],
)
def test_no_more_than_the_secret_is_taken_out(line: str, shown: str) -> None:
    assert without_secrets(line) == shown
