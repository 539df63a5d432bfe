"""
The words of family judge, and the shapes that its tools take and return.

    menu       what can be asked of Claude, and nothing else
    contract   what a task was to be, and which files it changed: TASK_CONTRACT.json
    verdict    PASS, CONDITIONAL, FAIL or CRITICAL_HALT
    report     what came of asking once: the ruling, or why there is none, and what it cost
"""

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from crewhall.bounded import cut_middle, take_fitting
from crewhall.store.transaction import Row
from crewhall.tool import Result

Kind = Literal["review", "proposal", "audit", "conflict"]
VerdictWord = Literal["PASS", "CONDITIONAL", "FAIL", "CRITICAL_HALT"]
Word = Literal[
    "PASS", "CONDITIONAL", "FAIL", "CRITICAL_HALT", "valid", "invalid", "clean", "findings", "floor_manager", "judge"
]
Severity = Literal["critical", "high", "medium", "low"]
Side = Literal["floor_manager", "judge"]
GOOD = ("PASS", "valid", "clean", "floor_manager", "judge")  # what somebody goes on because of
FINDINGS, FINDING_CHARACTERS = 200, 4_000  # of an answer, and of one finding in it
SHOWN_BYTES = 12_000  # of findings that a result repeats; the report has all

PathText = Annotated[str, Field(min_length=1, max_length=4096)]
ContractPath = Annotated[PathText, Field(description="Path to TASK_CONTRACT.json.")]
ReportDir = Annotated[PathText, Field(description="Directory for JUDGE_REPORT.md and JUDGE_REPORT.json.")]
Seconds = Annotated[int, Field(ge=1, le=7200, description="Maximum time; waiting in line does not count.")]
Fresh = Annotated[bool, Field(description="Ask anew, even if the same question was answered.")]
ReportId = Annotated[str, Field(min_length=1, max_length=100)]
Text = Annotated[str, Field(min_length=1, max_length=20_000)]


def _places(name: str) -> AliasChoices:
    """Where contracts have it: at the top, in the specification, or in what was handed over."""
    return AliasChoices(name, AliasPath("specification", name), AliasPath("handoff_data", name))


def _plain(raw: str) -> str:
    """An id as it can be kept, told and compared."""
    if not raw.isprintable() or raw != raw.strip():
        raise ValueError("it has letters that nobody sees, or a space at an end")
    return raw


def _criteria(raw: list[Any] | dict[str, Any]) -> list[Any] | dict[str, Any]:
    """Criteria of which each says something; in an object they may be in groups, which are lists."""
    for place, one in enumerate(raw) if isinstance(raw, list) else raw.items():
        if _is_empty(one) or (isinstance(raw, dict) and isinstance(one, list) and any(map(_is_empty, one))):
            raise ValueError(f"item {ascii(place)[:100]} is null or empty, or has an item that is")
    return raw


def _is_empty(criterion: Any) -> bool:
    return criterion is None or criterion in ([], {}) or (isinstance(criterion, str) and not criterion.strip())


class Specification(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    requirements: Annotated[list[Text], Field(min_length=1, max_length=1000)]


class Contract(BaseModel):
    """TASK_CONTRACT.json: what is read of it; all of it is shown to the judge."""

    model_config = ConfigDict(frozen=True, strict=True)

    task_id: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_plain)]
    specification: Specification
    acceptance_criteria: Annotated[
        list[Any] | dict[str, Any],
        Field(min_length=1, validation_alias=_places("acceptance_criteria")),
        AfterValidator(_criteria),
    ]
    changed_files: Annotated[
        list[PathText],
        Field(min_length=1, max_length=2000, validation_alias=_places("changed_files")),
    ]
    workflow_id: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_plain)] | None = None


def _line(raw: Any) -> Any:
    """A line's number; what a model says in other words, such as "12-15", is none."""
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 < raw < 10**9 else None


class Finding(BaseModel):
    """One point of a report."""

    model_config = ConfigDict(frozen=True)

    file: Annotated[str, Field(max_length=4096)] | None = None
    line: Annotated[int | None, BeforeValidator(_line)] = None
    issue: Annotated[
        str, Field(min_length=1, validation_alias=AliasChoices("issue", "description", "message", "title"))
    ]

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, raw: Any) -> Any:
        return {"issue": raw} if isinstance(raw, str) else raw

    @property
    def place(self) -> str:
        return f"{self.file or ''}{f':{self.line}' if self.file and self.line else ''}"


class AuditFinding(Finding):
    severity: Severity


class Ruling(BaseModel, ABC):
    """What Claude answered, in the shape that it was asked for. What else it says is not taken over."""

    model_config = ConfigDict(frozen=True, strict=True)

    @property
    @abstractmethod
    def word(self) -> str:
        """The ruling in one word."""

    @property
    def is_good(self) -> bool:
        """Whether somebody goes on because of it."""
        return self.word in GOOD


Findings = Annotated[list[Finding], Field(max_length=FINDINGS)]


class Verdict(Ruling):
    task_id: str
    verdict: VerdictWord
    summary: Annotated[str, Field(max_length=FINDING_CHARACTERS)] = ""
    blocking_issues: Findings
    suggestions: Findings = []

    @model_validator(mode="after")
    def _consistent(self) -> "Verdict":
        if self.verdict == "PASS" and self.blocking_issues:
            raise ValueError(f"it says PASS, and names {len(self.blocking_issues)} blocking issues")
        return self

    @property
    def word(self) -> str:
        return self.verdict


class Validation(Ruling):
    valid: bool
    issues: Findings

    @property
    def word(self) -> str:
        return "valid" if self.valid else "invalid"


class Audit(Ruling):
    summary: Annotated[str, Field(max_length=FINDING_CHARACTERS)] = ""
    findings: Annotated[list[AuditFinding], Field(max_length=FINDINGS)]

    @property
    def word(self) -> str:
        return "findings" if self.findings else "clean"


class Decision(Ruling):
    side: Side
    reasoning: Annotated[str, Field(min_length=1, max_length=20_000)]

    @property
    def word(self) -> str:
        return self.side


class Outcome(Result):
    """What came of asking. Without success there is no ruling at all, and `error` says why."""

    success: bool
    error: str | None = Field(description="parse_error, timed_out, stale, or the CLI's own last words.")
    timed_out: bool
    detail: str | None = Field(description="More about an error, or what else there is to know.")
    report_id: str | None
    working_directory: str = Field(description="The tree that was judged, as an absolute path.")
    cached: bool = Field(description="Answered from what is kept; it cost nothing.")
    duration_ms: int
    input_tokens: int
    output_tokens: int
    cost_usd: float


class Point(Result):
    file: str | None
    line: int | None
    issue: str


class AuditPoint(Point):
    severity: Severity


class ReviewOutcome(Outcome):
    verdict: VerdictWord | None
    blocking_issues_count: int | None
    blocking_issues: list[Point] = Field(description="As many as fit; the report has all.")
    summary: str | None
    report_md_path: str | None = Field(description="Absolute unless it is below your own directory.")
    report_json_path: str | None
    task_id: str
    workflow_id: str | None
    workflow_paused: bool
    not_shown: list[str] = Field(description="Changed files that the prompt did not show, and why; some at the most.")


class ValidationOutcome(Outcome):
    valid: bool | None
    issues: list[Point]


class AuditOutcome(Outcome):
    findings: list[AuditPoint]
    findings_count: int | None
    summary: str | None


class DecisionOutcome(Outcome):
    side: Side | None
    reasoning: str | None


class JudgeHealth(Result):
    available: bool
    version: str | None
    error: str | None
    model: str | None = Field(description="Null: the CLI's own choice.")
    running: int = Field(description="Reviews that run in this hub.")
    waiting: int
    at_once: int


class ReportRow(Result):
    id: str
    kind: Kind
    subject: str = Field(description="The contract's task_id, or the path that was asked about.")
    workflow_id: str | None
    task_id: str | None = Field(description="As the contract has it; null where there was none.")
    verdict: str | None = Field(description="Null: there is none, and error says why.")
    error: str | None
    model: str | None
    input_tokens: int
    output_tokens: int
    cost_usd: float
    duration_ms: int
    actor: str
    created_at: int

    @classmethod
    def from_row(cls, row: Row) -> "ReportRow":
        fields = {name: row[name] for name in cls.model_fields if name != "task_id"}
        task_id = row["subject"] if row["kind"] in ("review", "conflict") else None
        return cls.model_validate(
            fields | {"error": row["error"] and cut_middle(row["error"], 200), "task_id": task_id}
        )


def _money(raw: float) -> float:
    return round(raw, 6)


class Spending(Result):
    """What all of them took together."""

    reports: int
    input_tokens: int
    output_tokens: int
    cost_usd: Annotated[float, AfterValidator(_money)]


class Reports(Result):
    reports: list[ReportRow]
    spent: Spending
    next_offset: int | None


class Report(ReportRow):
    """A report as a whole."""

    commit: str | None = Field(description="HEAD of the working tree that was looked at.")
    directory: str
    ruling: dict[str, Any] | None = Field(description="Null where there is none, or it is too long: then see text.")
    text: str = Field(description="The report as Markdown.")
    next_offset: int | None


def points(findings: "list[Finding] | list[AuditFinding]", shape: type[Point] = Point) -> list[Any]:
    """As many findings as fit in a result."""
    shown = (shape.model_validate(one.model_dump() | {"issue": one.issue[:FINDING_CHARACTERS]}) for one in findings)
    return take_fitting(shown, SHOWN_BYTES)
