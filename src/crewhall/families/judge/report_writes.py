"""The directories into which a hub's reviews write, so that the end of one takes no report of another away."""

import threading
from dataclasses import dataclass


@dataclass(eq=False)
class RunningReview:
    directory: str
    is_overtaken: bool = False  # another review has written its reports there meanwhile


class ReportWrites:
    """What one hub knows about report files. Everything here is used with the lock held.

    Hubs in other processes know nothing of it: two that review into one directory may remove each other's reports.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()  # a pair of files is written or removed as one
        self.running: list[RunningReview] = []

    def begin(self, directory: str) -> RunningReview:
        review = RunningReview(directory)
        self.running.append(review)
        return review

    def note_written(self, directory: str) -> None:
        for review in self.running:
            review.is_overtaken |= review.directory == directory
