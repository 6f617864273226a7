"""A loopback server in the place of Kubeflow Pipelines' API."""

from __future__ import annotations

from dataclasses import dataclass, field

from vertex_server import Answer, Received

ROUTES = {
    "health": r"GET /apis/v2beta1/healthz",
    "experiments": r"GET /apis/v2beta1/experiments",
    "experiment": r"POST /apis/v2beta1/experiments",
    "list": r"GET /apis/v2beta1/runs",
    "recurring runs": r"GET /apis/v2beta1/recurringruns",
    "create": r"POST /apis/v2beta1/runs",
    "get": r"GET /apis/v2beta1/runs/[^/:]+",
    "terminate": r"POST /apis/v2beta1/runs/[^/:]+:terminate",
    "recurring": r"POST /apis/v2beta1/recurringruns",
}


@dataclass
class KubeflowServer:
    url: str = ""
    received: list[Received] = field(default_factory=list)
    answers: dict[str, list[Answer]] = field(default_factory=dict)

    def says(self, route: str, *answers: Answer) -> None:
        self.answers[route] = list(answers)

    def of(self, route: str) -> list[Received]:
        return [request for request in self.received if request.route == route]

    def answer(self, request: Received) -> Answer:
        queue = self.answers.get(request.route, [])
        if queue:
            return queue.pop(0) if len(queue) > 1 else queue[0]
        match request.route:
            case "health":
                return 200, {"multi_user": False, "tag_name": "2.14.0"}
            case "experiments" | "terminate" | "list" | "recurring runs":
                return 200, {}
            case "experiment":
                return 200, {**request.body, "experiment_id": "e-1"}
            case "create":
                return 200, {**request.body, "run_id": "r-1", "state": "PENDING"}
            case "recurring":
                return 200, {**request.body, "recurring_run_id": "s-1"}
            case _:
                return failure(404, "no such thing")


def failure(status: int, message: str) -> Answer:
    return status, {"code": 5, "error": message, "message": message}


def run(state: str, *tasks: tuple[str, str, str]) -> Answer:
    """Return a run as KFP gives it; a task is its name, state and error."""
    details = [
        {"display_name": name, "state": state, **({"error": {"code": 9, "message": error}} if error else {})}
        for name, state, error in tasks
    ]
    return 200, {"run_id": "r-1", "state": state, "run_details": {"task_details": details}}
