"""A task's contract, as it is read: every field that is wrong is named, and what it says of the hall is true."""

import re

from pydantic import ValidationError

from crewhall.app import Call
from crewhall.errors import InvalidInput
from crewhall.families.judge.model import Contract
from crewhall.families.judge.paths import InputDirectory, read
from crewhall.families.judge.rules_answer import problems
from crewhall.families.judge.rules_prompt import InputFile
from crewhall.families.work.repository.tools import site_of
from crewhall.families.work.workflow.model import WorkflowRow
from crewhall.outside.strict_json import strict_json

SHAPE = (
    'A contract is {"task_id": "…", "specification": {"requirements": ["…"]}, "acceptance_criteria": ["…"], '
    '"changed_files": ["src/a.py"]}; with "workflow_id", or the id of a task in the hall, it is linked to that.'
)

LOOKS_LIKE_A_TASK = re.compile(r"tk_[0-9a-z]{12}")


def contract_at(call: Call, directory: InputDirectory, path: str) -> tuple[Contract, InputFile]:
    """The contract at a path, and the input file that it is. Raises InvalidInput that names each wrong field."""
    file = read(call, directory, path)
    try:
        data = strict_json(file.text or "")
        if not isinstance(data, dict):
            raise ValueError("it is not an object")
        return Contract.model_validate(data), file
    except ValidationError as error:
        raise InvalidInput(f"{file.name}: {'; '.join(problems(error))}", hint=SHAPE) from None
    except ValueError as error:
        raise InvalidInput(f"{file.name} is no contract: {error}", hint=SHAPE) from None


def workflow_of(call: Call, contract: Contract, directory: InputDirectory) -> str | None:
    """The workflow that the contract names, or that its task is of.

    Raises InvalidInput when there is no such workflow or task, the task is another's, or the workflow is of another
    repository than the directory: what is judged here halts nothing there.
    """
    with call.look() as tx:
        task, named = tx.one("task_workflow", id=contract.task_id), contract.workflow_id
        workflow_id = named if task is None else task["workflow_id"]
        workflow = None if workflow_id is None else tx.one("workflow_get", id=workflow_id)
    if task is None and LOOKS_LIKE_A_TASK.fullmatch(contract.task_id):
        raise InvalidInput(
            f"task_id: there is no task '{contract.task_id}' in this hall", hint="task_list shows a workflow's tasks."
        )
    if named is not None and workflow is None:
        raise InvalidInput(
            f"workflow_id: there is no workflow '{named}' in this hall", hint="Leave it out, or mend it."
        )
    if named not in (None, workflow_id):
        raise InvalidInput(
            f"workflow_id is {named}, and task {contract.task_id} belongs to {workflow_id}", hint="Mend one of them."
        )
    if workflow is not None:
        _refuse_other_repository(workflow, directory.path)
    return workflow_id


def _refuse_other_repository(workflow: WorkflowRow, directory: str) -> None:
    """Raise InvalidInput when both are in repositories of this machine, and these are two."""
    if workflow["repository_path"] is None:
        return
    here, there = site_of(directory), site_of(workflow["repository_path"])
    if here.is_repository and there.is_repository and here.path != there.path:
        raise InvalidInput(
            f"workflow {workflow['id']} is of {there.path}, and the contract is in {here.path}",
            hint="Ask in a working tree of that repository, or name a workflow of this one.",
        )
