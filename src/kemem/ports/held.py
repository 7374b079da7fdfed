"""What a process holds of the outbox though it has stopped working on it: the store was away."""

from kemem.records import Micros
from kemem.records.batch import Job


class HeldJobs:
    """Jobs whose failure could not be written, and claims that nobody knows the answer of.

    Others see them only after their lease; whoever held them need not wait for that.
    """

    def __init__(self) -> None:
        self._attempts: dict[str, int] = {}  # by job
        self._leases: set[Micros] = set()  # the ends of those that a lost claim may have taken

    def add(self, job: Job) -> None:
        """Nobody works on a job any more, which the store was not told."""
        self._attempts[job.job_id] = job.attempts

    def add_claim(self, lease_ends: Micros) -> None:
        """A job may have been claimed until then."""
        self._leases.add(lease_ends)

    def take(self) -> "HeldJobs | None":
        """Everything, for one to release; None without any."""
        if not (self._attempts or self._leases):
            return None
        taken = HeldJobs()
        taken.join(self)
        self._attempts.clear()
        self._leases.clear()
        return taken

    def join(self, other: "HeldJobs") -> None:
        """What another has, too."""
        self._attempts |= other._attempts
        self._leases |= other._leases

    @property
    def ids(self) -> list[str] | None:
        """The jobs by id; None where a claim was lost and they can be any."""
        return None if self._leases else [*self._attempts]

    def has(self, job: Job) -> bool:
        """Whether a job is one of these, and nobody else has claimed it since."""
        return job.due in self._leases or self._attempts.get(job.job_id) == job.attempts
