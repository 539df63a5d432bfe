"""
The environment that a program of the hall's gets: variables by name, and no others of the hub's.

    program_environment(os.environ, settings["programs.variables"])   a recipe, an instance, the judge's CLI
    program_environment(os.environ)                                   just --list, docker, tmux
    git_environment(os.environ)                                       git: a password in a proxy's URL too, and SSH

What is passed on is where things are and how they look: paths of tools, languages, certificates, proxies. A name says
little about its value, so a list of secrets would always lack one.
"""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from crewhall.config import CLIENT_VARIABLES, OWN_PREFIXES
from crewhall.errors import Unavailable

HALL_TOKEN = re.compile(r"ch_[a-z]+_[\w-]{43}")
# In http the name alone may be a token, or the password empty; elsewhere it is a user: ssh://git@host.
URL_PASSWORD = re.compile(r"https?://[^/@\s]++@|://[^/@:\s]*+:[^/@\s]*+@", re.IGNORECASE)
PROXIES = frozenset(f"{kind}_proxy" for kind in ("http", "https", "all", "no", "ftp"))
PASSED_PREFIXES = ("LC_", "XDG_")
SESSION = """
    PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TERM COLORTERM NO_COLOR TMPDIR TMP TEMP HOSTNAME CI
    DISPLAY WAYLAND_DISPLAY __CF_USER_TEXT_ENCODING WSL_DISTRO_NAME WSL_INTEROP
"""
CERTIFICATES = """
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS NIX_SSL_CERT_FILE PIP_CERT
"""
TOOLCHAINS = """
    CC CXX AR LD CFLAGS CXXFLAGS CPPFLAGS LDFLAGS MAKEFLAGS PKG_CONFIG_PATH CPATH LIBRARY_PATH LD_LIBRARY_PATH
    DYLD_LIBRARY_PATH CMAKE_PREFIX_PATH SDKROOT DEVELOPER_DIR MACOSX_DEPLOYMENT_TARGET
    VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYENV_ROOT PYENV_VERSION CONDA_PREFIX
    CONDA_DEFAULT_ENV CONDA_EXE PIP_CACHE_DIR PIP_INDEX_URL PIPX_HOME POETRY_HOME UV_CACHE_DIR UV_INDEX_URL
    UV_DEFAULT_INDEX NVM_DIR NVM_BIN NODE_PATH NODE_ENV NPM_CONFIG_REGISTRY NPM_CONFIG_CACHE NPM_CONFIG_PREFIX
    VOLTA_HOME FNM_DIR FNM_MULTISHELL_PATH PNPM_HOME COREPACK_HOME BUN_INSTALL DENO_DIR DENO_INSTALL
    PLAYWRIGHT_BROWSERS_PATH GOPATH GOROOT GOBIN GOCACHE GOMODCACHE GOPROXY GOSUMDB GOPRIVATE GOFLAGS GOOS GOARCH
    GOTOOLCHAIN CGO_ENABLED CARGO_HOME CARGO_TARGET_DIR RUSTUP_HOME RUSTUP_TOOLCHAIN RUSTFLAGS
    JAVA_HOME M2_HOME MAVEN_HOME GRADLE_HOME GRADLE_USER_HOME SDKMAN_DIR ANDROID_HOME ANDROID_SDK_ROOT
    GEM_HOME GEM_PATH RBENV_ROOT BUNDLE_PATH COMPOSER_HOME DOTNET_ROOT NUGET_PACKAGES MIX_HOME HEX_HOME
    ASDF_DIR ASDF_DATA_DIR MISE_DATA_DIR HOMEBREW_PREFIX HOMEBREW_CELLAR HOMEBREW_REPOSITORY NIX_PATH NIX_PROFILES
    DOCKER_HOST DOCKER_CONTEXT DOCKER_CONFIG DOCKER_CERT_PATH DOCKER_TLS_VERIFY DOCKER_API_VERSION DOCKER_BUILDKIT
    CLAUDE_CONFIG_DIR CODEX_HOME
"""
PASSED = frozenset(f"{SESSION} {CERTIFICATES} {TOOLCHAINS}".split()) | PROXIES | {name.upper() for name in PROXIES}
GIT_NEEDS = ("SSH_AUTH_SOCK", *sorted(PROXIES), *sorted(name.upper() for name in PROXIES))


def program_environment(environ: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """The variables that every program may have, and those that `more` names, where `*` stands for any letters.

    The hall's own settings and tokens are never among them. `more` has to name an URL with a password or token.
    """
    patterns = tuple(more)
    return {
        name: value
        for name, value in environ.items()
        if not _is_halls(name, value) and (_is_usual(name, value) or _is_named(name, patterns))
    }


def git_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What git gets, and the filters and drivers that a repository's own settings name: what reaches a host, too."""
    return program_environment(environ, GIT_NEEDS)


def _is_halls(name: str, value: str) -> bool:
    return name.startswith(OWN_PREFIXES) or HALL_TOKEN.search(value) is not None


def _is_named(name: str, patterns: tuple[str, ...]) -> bool:
    """A host's token has to be named in full: the hub may have it for pull requests alone."""
    return name in patterns or (name not in CLIENT_VARIABLES and any(fnmatchcase(name, one) for one in patterns))


def _is_usual(name: str, value: str) -> bool:
    is_known = name in PASSED or name.startswith(PASSED_PREFIXES)
    return is_known and URL_PASSWORD.search(value) is None


def instance_environment(more: Iterable[str], passes: Iterable[str]) -> dict[str, str]:
    """This process's environment for an instance's program: the usual, `more`, and its runtime's own variables."""
    own = {name: os.environ[name] for name in passes if os.environ.get(name)}
    usual = program_environment(os.environ, more)
    usual.pop("TERM", None)  # the session's terminal has its own
    return usual | own


def refuse_missing(program: str, what: str) -> None:
    """Raise Unavailable when PATH has no such program, which `what` needs."""
    if shutil.which(program) is None:
        raise Unavailable(f"{what} needs {program}, which is not installed", hint=f"Install {program}, then try again.")
