"""Plans submitted flows and their changes, in the planner's process."""

import msgspec

from scribengin.api.plane import ApiRequest
from scribengin.api.planner import ask_planner
from scribengin.api.state_queries import StateQuery
from scribengin.client.change_models import Topology
from scribengin.client.models import FLOW_NAME, PACKAGE_ID, Submit
from scribengin.client.problems import Fault, PointedError
from scribengin.control import topology
from scribengin.control.submission import Submission
from scribengin.control.workflows import refuse_circle

_MOST_FLOWS = 200


def planned(asked: ApiRequest, wanted: Topology) -> tuple[topology.PlannedTopology, list[Submission]]:
    """Plan the submission of flows, in the planner's process.

    Args:
        asked: the request.
        wanted: the flows.

    Returns:
        The changes that submitting them would make, and the submitted flows.

    Raises:
        InputError: every problem of every flow.
        Refused: `package-missing`, `flow-path`, `plan-late`, `role-lacking`.
        EnvironmentFault: the process ended without an answer.
    """
    if not 0 < len(wanted.flows) <= _MOST_FLOWS:
        raise PointedError(
            (Fault("body", f"/flows has {len(wanted.flows)} flows", f"submit 1 to {_MOST_FLOWS} at once", pointer="/flows"),)
        )
    for number, submit in enumerate(wanted.flows):
        check_submit(submit, f"/flows/{number}")
    for package in {submit.package for submit in wanted.flows}:
        asked.plane.planner.fetch(package)
    store = asked.plane.packages
    inside = {submit.package: {each.path: each.name for each in store.read(submit.package).manifest.flows} for submit in wanted.flows}
    names = [name for submit in wanted.flows if (name := inside[submit.package].get(submit.path)) is not None]
    flows = [name for name in names if FLOW_NAME.fullmatch(name)]
    query = StateQuery("topology", "", flows=tuple(flows), submits=tuple(wanted.flows), state=asked.plane.state)
    found = ask_planner(asked.plane, query)
    submissions = msgspec.convert(found["submissions"], list[Submission])
    for submission in submissions:
        asked.check_new(submission.flow, submission.labels)
    refuse_circle(asked.plane.workflows, {submission.flow: submission.ends for submission in submissions})
    return msgspec.convert(found["plan"], topology.PlannedTopology), submissions


def check_submit(wanted: Submit, pointer: str = "") -> None:
    """Raise InputError if the submission cannot be planned. `pointer` is its place in the body, as a JSON pointer."""
    faults = []
    if not PACKAGE_ID.fullmatch(wanted.package):
        said = f"{pointer}/package is not a SHA-256"
        remedy = "write 64 hexadecimal digits, as `scribengin package create` shows them"
        faults.append(Fault("body", said, remedy, pointer=f"{pointer}/package"))
    if not wanted.base.startswith("/") or "\0" in wanted.base:
        said = f"{pointer}/base is not an absolute path"
        faults.append(Fault("body", said, "name the folder where relative paths start", pointer=f"{pointer}/base"))
    if faults:
        raise PointedError(tuple(faults))
