"""The chart as Helm renders it: Kubernetes accepts each object, pods are restricted, rights are few, and what they name exists."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml

from harness.pages.openapi import openapi_document
from scribengin.cli.main import scribengin
from scribengin.control import masters
from scribengin.core.secret import read_secret
from scribengin.launch.kubernetes import RIGHTS
from tests.deploy.chart import (
    CASES,
    CHART,
    KUBERNETES,
    NAMESPACE,
    faults_of_form,
    helm,
    objects,
    of_kind,
    pods,
    template,
    values_of,
    worker_template,
)
from tests.deploy.pod_security import breaches, containers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVERS = {"master": "masters", "node": "nodes"}
_COMPONENT = "app.kubernetes.io/component"
_OWN = ("SCRIBENGIN_", "POD_")
each_case = pytest.mark.parametrize("case", CASES)


def walk(value: Any) -> Iterator[Any]:
    """All objects within one, and itself."""
    yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(each)


def command_of(name: str) -> click.Command:
    """`scribengin server NAME`."""
    command: click.Command = scribengin
    for word in ("server", name):
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command


# what Helm and Kubernetes say


@each_case
def test_helm_has_nothing_to_say(case: str) -> None:
    linted = helm("lint", CHART, "--strict", "--kube-version", KUBERNETES, "--values", values_of(case))
    assert linted.returncode == 0, linted.stdout
    assert "[WARNING]" not in linted.stdout


@each_case
def test_kubernetes_accepts_each_object(case: str) -> None:
    found = [*objects(case), worker_template(case)]
    foreign = [each for each in found if each["apiVersion"].startswith("monitoring.coreos.com/")]
    assert len(foreign) == (case == "full")
    assert [(each["kind"], faults_of_form(each)) for each in found if each not in foreign and faults_of_form(each)] == []


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    (found, *_) = of_kind("minimal", "StatefulSet").values()
    wrong = copy.deepcopy(found)
    container = wrong["spec"]["template"]["spec"]["containers"][0]
    container["securityContext"]["readOnlyRootFileSystem"] = True
    container["ports"][0]["containerPort"] = "8080"
    del wrong["spec"]["selector"]
    faults = "\n".join(faults_of_form(wrong))
    assert len(faults.splitlines()) == 3
    assert "'readOnlyRootFileSystem' was unexpected" in faults
    assert "'8080' is not of type 'integer'" in faults
    assert "'selector' is a required property" in faults
    assert faults_of_form({"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("registry.address=", "registry.address is required"),
        ("registry.existingSecret=", "registry.existingSecret is required"),
        ("state=", "state is required"),
        ("state=/state/flows", "name the volume in sharedVolume.existingClaim"),
        ("state=/flows,sharedVolume.existingClaim=shared", "which is not below sharedVolume.mountPath (/state)"),
        ("insecureApi=false", "tls.existingSecret is required"),
        ("tls.existingSecret=tls", "set either tls.existingSecret or insecureApi"),
        ("sharedVolume.existingClaim=shared,workers.namespace=elsewhere", "use a state in HDFS or a bucket"),
        ("registry.adress=zk://z1/flows", "additional properties 'adress' not allowed"),
    ],
)
def test_what_cannot_run_is_not_installed_and_the_message_says_what_to_set(settings: str, message: str) -> None:
    rendered = template("minimal", "--set", settings)
    assert rendered.returncode != 0
    assert message in rendered.stderr


def test_the_notes_say_where_to_look_and_warn() -> None:
    dry = ("install", "scribengin", CHART, "--dry-run=client", "--namespace", NAMESPACE)
    notes = {case: helm(*dry, "--values", values_of(case)).stdout.partition("\nNOTES:\n")[2] for case in ("minimal", "secrets")}
    assert "API: http://scribengin.flows.svc:8080\n" in notes["minimal"]
    assert "WARNING: the API has no TLS" in notes["minimal"]
    assert "API: https://scribengin.flows.svc:8080\n" in notes["secrets"]
    assert "kubectl -n flows-workers get pods" in notes["secrets"]
    assert "WARNING" not in notes["secrets"]


# rights and security


@each_case
def test_pods_are_restricted(case: str) -> None:
    assert {component: breaches(spec) for component, spec in pods(case).items()} == {"master": [], "node": [], "worker": []}
    for component in SERVERS:
        for container in containers(pods(case)[component]):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert "memory" in container["resources"]["limits"]


def test_a_pod_that_is_not_restricted_is_found() -> None:
    (spec,) = (copy.deepcopy(spec) for component, spec in pods("minimal").items() if component == "node")
    spec["securityContext"] = {}
    spec["hostNetwork"] = True
    spec["volumes"].append({"name": "root", "hostPath": {"path": "/"}})
    spec["containers"][0]["securityContext"] = {"capabilities": {"add": ["SYS_ADMIN"]}, "privileged": True}
    assert breaches(spec) == [
        "hostNetwork",
        "volume root: hostPath",
        *("secrets: runAsNonRoot", "secrets: seccompProfile"),
        *(f"node: {each}" for each in ("privileged", "allowPrivilegeEscalation", "runAsNonRoot", "seccompProfile", "capabilities")),
    ]


@each_case
def test_rights_are_of_one_namespace_and_as_few_as_the_page_says(case: str) -> None:
    assert not [each for each in objects(case) if each["kind"].startswith("Cluster")]
    values = yaml.safe_load(values_of(case).read_text())
    where = values.get("workers", {}).get("namespace", NAMESPACE)
    roles = {name.rpartition("-")[2]: role for name, role in of_kind(case, "Role").items()}
    rights = {
        component: {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
        for component, role in roles.items()
    }
    for role in roles.values():
        assert role["metadata"]["namespace"] == where
        assert all(rule["apiGroups"] == [""] and set(rule) == {"apiGroups", "resources", "verbs"} for rule in role["rules"])
    assert rights["node"] == {resource: set(verbs) for resource, verbs in RIGHTS.items()}
    spark = {"pods": {"create", "get", "list", "watch", "patch", "delete", "deletecollection"}}
    if case == "full":
        spark["persistentvolumeclaims"] = {"create", "list", "deletecollection"}
    assert rights["worker"] == spark
    assert "*" not in json.dumps([role["rules"] for role in roles.values()])


@each_case
def test_each_account_has_the_rights_of_its_component_and_masters_have_none(case: str) -> None:
    accounts = {(each["metadata"]["namespace"], name): each for name, each in of_kind(case, "ServiceAccount").items()}
    bound = {}
    for name, binding in of_kind(case, "RoleBinding").items():
        (subject,) = binding["subjects"]
        assert binding["roleRef"]["name"] == name
        assert binding["roleRef"]["kind"] == "Role"
        assert name in of_kind(case, "Role")
        assert (subject["namespace"], subject["name"]) in accounts
        assert subject["name"].rpartition("-")[2] == name.rpartition("-")[2]
        bound[subject["name"].rpartition("-")[2]] = name
    assert set(bound) == {"node", "worker"}
    for component in SERVERS:
        spec = pods(case)[component]
        account = accounts[NAMESPACE, spec["serviceAccountName"]]
        assert account["metadata"]["labels"][_COMPONENT] == component
        # no token, no rights
        assert spec["automountServiceAccountToken"] is account["automountServiceAccountToken"] is (component in bound)
        # else a Service named scribengin sets variables that begin as the program's own do
        assert spec["enableServiceLinks"] is False
    assert worker_template(case)["spec"]["enableServiceLinks"] is False


@each_case
def test_secrets_are_named_and_no_object_has_one(case: str) -> None:
    found = objects(case)
    assert not [each for each in found if each["kind"] == "Secret"]
    named = set()
    for each in walk([*found, worker_template(case)]):
        if isinstance(each, dict):
            named |= {each["secret"]["secretName"]} if "secretName" in (each.get("secret") or {}) else set()
            named |= {each[kind]["name"] for kind in ("secretKeyRef", "secretRef") if kind in each}
            named |= {one["name"] for one in each.get("imagePullSecrets", ())}
    expected = {
        "minimal": {"registry-login"},
        "secrets": {"registry-login", "worker-key", "registry-tls", "api-tls", "first-tokens", "service-token"},
        "full": {"registry-login", "api-tls", "service-token", "bucket", "pull"},
    }
    assert named == expected[case]
    for spec in pods(case).values():
        for container in containers(spec):
            for variable in container.get("env", ()):
                assert not re.search("TOKEN|PASSWORD|SECRET", variable["name"]) or "value" not in variable


# names


@each_case
def test_names_and_labels_fit_each_other(case: str) -> None:
    names = [(each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]) for each in objects(case)]
    assert len(names) == len(set(names))
    labels = {}
    for name, each in of_kind(case, "StatefulSet").items():
        component = each["metadata"]["labels"][_COMPONENT]
        labels[component] = each["spec"]["template"]["metadata"]["labels"]
        assert name.endswith(f"-{component}")
        assert each["spec"]["selector"]["matchLabels"].items() <= labels[component].items()
        # the Service that gives pods their names, also before they are ready: masters and nodes publish them then
        service = of_kind(case, "Service")[each["spec"]["serviceName"]]
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True
        assert service["metadata"]["labels"][_COMPONENT] == component
    labels["worker"] = worker_template(case)["metadata"]["labels"]
    selectors = {
        "Service": ("selector",),
        "PodDisruptionBudget": ("selector", "matchLabels"),
        "NetworkPolicy": ("podSelector", "matchLabels"),
    }
    for kind, place in selectors.items():
        for each in of_kind(case, kind).values():
            selector: Any = each["spec"]
            for name in place:
                selector = selector[name]
            chosen = [component for component, own in labels.items() if selector.items() <= own.items()]
            assert chosen == [each["metadata"]["labels"][_COMPONENT]]
    assert len(of_kind(case, "NetworkPolicy")) == (2 if case == "full" else 0)
    for each in objects(case):
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "scribengin"


@each_case
def test_ports_probes_and_volumes_that_are_named_exist(case: str) -> None:
    paths = openapi_document()["paths"]
    for component, spec in pods(case).items():
        volumes = {volume["name"] for volume in spec.get("volumes", ())}
        holder = next((each for each in of_kind(case, "StatefulSet").values() if each["metadata"]["labels"][_COMPONENT] == component), None)
        if holder is not None:
            volumes |= {claim["metadata"]["name"] for claim in holder["spec"].get("volumeClaimTemplates", ())}
        mounted = {mount["name"] for container in containers(spec) for mount in container.get("volumeMounts", ())}
        assert mounted == volumes
        if component == "worker":
            continue
        (container,) = spec["containers"]
        ports = {port["name"] for port in container["ports"]}
        probes = [container[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert all(next(probe[kind]["port"] for kind in ("httpGet", "tcpSocket") if kind in probe) in ports for probe in probes)
        for probe in probes:
            if "httpGet" in probe:
                assert "security" not in paths[probe["httpGet"]["path"]]["get"], "it asks for a token"
                assert probe["httpGet"]["scheme"] == ("HTTP" if case == "minimal" else "HTTPS")
        services = [each for each in of_kind(case, "Service").values() if each["metadata"]["labels"][_COMPONENT] == component]
        assert {port["targetPort"] for each in services for port in each["spec"]["ports"]} == ports
    if case == "full":
        (monitor,) = of_kind(case, "ServiceMonitor").values()
        annotations = of_kind(case, "StatefulSet")["scribengin-flows-master"]["spec"]["template"]["metadata"]["annotations"]
        assert {monitor["spec"]["endpoints"][0]["path"], annotations["prometheus.io/path"]} <= set(paths)
        selector = monitor["spec"]["selector"]["matchLabels"].items()
        chosen = [name for name, each in of_kind(case, "Service").items() if selector <= each["metadata"]["labels"].items()]
        assert chosen == ["scribengin-flows-masters"]  # one target for each master, not two


# what the servers are given


@each_case
@pytest.mark.parametrize("component", SERVERS)
def test_the_command_line_takes_the_arguments_and_variables(case: str, component: str) -> None:
    (container,) = pods(case)[component]["containers"]
    assert "command" not in container  # it is the entrypoint of the image that runs
    assert container["args"][:2] == ["server", component]
    words = container["args"][2:]
    command = command_of(component)
    known = {option: parameter for parameter in command.params for option in parameter.opts}
    if component == "node" and "kubernetes" not in known["--launcher"].type.choices:
        at = words.index("--launcher")
        assert all(word in words for word in ("--kubernetes-namespace", "--kubernetes-image", "--kubernetes-service-account"))
        words = words[:at]  # the launcher is not there yet
    context = click.Context(command)
    values, rest, _ = command.make_parser(context).parse_args(list(words))
    assert rest == []
    for name, value in values.items():
        (parameter,) = (each for each in command.params if each.name == name)
        if isinstance(parameter.type, click.Choice | click.IntRange) and isinstance(value, str):
            parameter.type.convert(value, parameter, context)
    variables = {variable["name"] for variable in container["env"] if variable["name"].startswith("SCRIBENGIN_")}
    read = {parameter.envvar for parameter in command.params} | {masters.TOKEN, masters.CERTIFICATES}
    assert variables <= read
    assert {"SCRIBENGIN_REGISTRY", "SCRIBENGIN_REGISTRY_LOGIN_FILE"} <= variables


@each_case
@pytest.mark.parametrize(("component", "service"), SERVERS.items())
def test_a_server_listens_under_the_name_that_dns_has_for_it(case: str, component: str, service: str) -> None:
    (container,) = pods(case)[component]["containers"]
    values = yaml.safe_load(values_of(case).read_text())
    prefix = "scribengin-flows" if case == "full" else "scribengin"
    expected = f"$(POD_NAME).{prefix}-{service}.$(POD_NAMESPACE).svc.{values.get('clusterDomain', 'cluster.local')}"
    words = container["args"]
    assert words[words.index("--listen") + 1] == expected
    assert words[words.index("--name") + 1] == "$(POD_NAME)"
    names = [variable["name"] for variable in container["env"]]
    assert set(re.findall(r"\$\((\w+)\)", " ".join(words))) <= set(names)
    assert len(names) == len(set(names))
    assert int(words[words.index("--port") + 1]) == container["ports"][0]["containerPort"]
    home = words[words.index("--home") + 1]
    assert home in {mount["mountPath"] for mount in container["volumeMounts"]}
    files = [
        word for word in [*words, *(variable.get("value", "") for variable in container["env"])] if word.startswith(("/etc/", "/run/"))
    ]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert [file for file in files if not any(file.startswith(mount) for mount in mounts)] == []


@each_case
def test_workers_find_files_of_the_registry_and_of_masters_at_the_same_paths(case: str) -> None:
    """Nodes pass on the paths of their own options."""
    (node,), (worker,) = (pods(case)[component]["containers"] for component in ("node", "worker"))
    read = {v["name"]: v["value"] for v in node["env"] if "TLS" in v["name"] or v["name"] == masters.CERTIFICATES}
    mounts = {mount["mountPath"] for mount in worker.get("volumeMounts", ())}
    assert [path for path in read.values() if path.rpartition("/")[0] not in mounts] == []
    own = {variable["name"]: variable.get("value") for variable in worker.get("env", ())}
    assert own.get(masters.CERTIFICATES) == read.get(masters.CERTIFICATES)
    # workers trust masters, they do not speak for them
    for volume in worker_template(case)["spec"].get("volumes", ()):
        if volume["name"] == "tls":
            assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


def test_secrets_are_copied_so_that_only_their_user_may_read_them(tmp_path: Path) -> None:
    (container,) = pods("secrets")["master"]["initContainers"]
    for name, file, text in (("registry", "user-and-password", "flows:pw"), ("worker-key", "random", "k"), ("tokens", "tokens.json", "{}")):
        (tmp_path / "secrets" / name).mkdir(parents=True)
        (tmp_path / "secrets" / name / file).write_text(text)
        (tmp_path / "secrets" / name / file).chmod(0o440)  # as Kubernetes has it
    for folder in ("run/scribengin", "home/scribengin/master"):
        (tmp_path / folder).mkdir(parents=True)
    (script,) = container["args"]
    here = re.sub(r"(?<= )/(?=secrets|run|home)", f"{tmp_path}/", script)
    for _ in range(2):  # a pod may be started again over the same volumes
        subprocess.run([*container["command"], here], check=True)
    assert read_secret(tmp_path / "run/scribengin/login").reveal() == "flows:pw"
    assert read_secret(tmp_path / "run/scribengin/worker-key").reveal() == "k"
    assert (tmp_path / "home/scribengin/master/tokens.json").stat().st_mode & 0o777 == 0o600


def test_an_image_may_be_named_by_its_digest_and_workers_may_have_another_one() -> None:
    for component in SERVERS:
        for container in containers(pods("full")[component]):
            assert re.fullmatch(r"registry.example/scribengin@sha256:[0-9a-f]{64}", container["image"])
    words = pods("full")["node"]["containers"][0]["args"]
    assert words[words.index("--kubernetes-image") + 1] == "registry.example/flows:7"
    words = pods("minimal")["node"]["containers"][0]["args"]
    assert words[words.index("--kubernetes-image") + 1] == pods("minimal")["node"]["containers"][0]["image"]
