"""
A repository's own first message for a type of instance, from a branch that the instance has no hand in.

    coding, planning     .crewhall/prompts/coding.md of its base branch
    review               .crewhall/prompts/review.md of the base branch of the coder that it reviews
"""

from crewhall.errors import InvalidState
from crewhall.families.crew.model import InstanceRow
from crewhall.outside.git import GitRepository

OWN_PROMPTS = ".crewhall/prompts"  # in a repository, files that replace the hall's own
PROMPT_BYTES = 200_000
FILE_MODES = ("100644", "100755")


def own_prompt(repo: GitRepository, row: InstanceRow, coder: InstanceRow | None) -> str | None:
    """The text that the repository has for this type. Raises InvalidState when it is too long or no text."""
    base = repo.commit_of(repo.base_of((coder or row)["base_branch"]))
    path = f"{OWN_PROMPTS}/{row['type']}.md"
    listed = repo.git("ls-tree", "-z", "-l", base, "--", path).out if base else b""
    mode, _, blob, size = (listed.partition(b"\t")[0].decode().split() or ["", "", "", "0"])[:4]
    if mode not in FILE_MODES:
        return None
    data = repo.git("cat-file", "blob", blob).out if int(size) <= PROMPT_BYTES else b"\xff"
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidState(
            f"{path} is no UTF-8 text of at most {PROMPT_BYTES} bytes",
            hint="Correct it on the base branch, or remove it: the hall has a text of its own.",
            instance_id=row["id"],
        ) from None
