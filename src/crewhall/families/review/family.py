"""The family's name, under which its tools declare themselves."""

from crewhall.tool import Family

review = Family(
    "review",
    "The review loop: a coding instance asks for a review, a review instance sends feedback, a pull request ends it.",
    "crewhall.families.review",
)
