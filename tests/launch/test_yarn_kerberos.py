"""Kerberos logins of workers in YARN: options, files, and what is told."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

import pytest

from scribengin.cli.main import main
from scribengin.core.errors import EnvironmentFault
from scribengin.core.secret import Secret
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.yarn import YarnLauncher, check_login, submission_fault
from scribengin.launch.yarn_cluster import KerberosLogin, ResourceManagers, YarnCluster
from tests.served import served_by

if TYPE_CHECKING:
    from pathlib import Path

KEY = b"\x05\x02the-key-that-nobody-sees"
FLOWS = "flows@EXAMPLE.COM"


@pytest.fixture
def keytab(tmp_path: Path) -> Path:
    path = tmp_path / "flows.keytab"
    path.write_bytes(KEY)
    path.chmod(0o600)
    return path


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)


def cluster(folder: Path, login: KerberosLogin | None) -> YarnCluster:
    return YarnCluster(folder, ("http://127.0.0.1:1",), login=login)


def order(**spark: str | Secret) -> LaunchOrder:
    return LaunchOrder("tweets.main-1", ("python",), spark={f"spark.kerberos.{name}": value for name, value in spark.items()})


@pytest.mark.parametrize("principal", ["flows@EXAMPLE.COM", "flows/host.example@EXAMPLE.COM", "flows"])
def test_the_user_in_yarn_is_the_first_part_of_the_principal(keytab: Path, principal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    login = KerberosLogin(principal, keytab)
    login.check()
    assert cluster(keytab.parent, login).user == "flows"
    monkeypatch.setenv("HADOOP_USER_NAME", "mapped")
    assert cluster(keytab.parent, login).user == "mapped", "by rules of the cluster"


@pytest.mark.parametrize("principal", ["", "a b@X", "@X", "a@", "a@b@c", "a/b/c@X"])
def test_a_text_that_is_not_a_principal_is_refused(keytab: Path, principal: str) -> None:
    with pytest.raises(EnvironmentFault, match="not a valid Kerberos principal"):
        KerberosLogin(principal, keytab).check()


def test_a_keytab_that_others_can_read_is_refused(keytab: Path) -> None:
    keytab.chmod(0o640)
    with pytest.raises(EnvironmentFault, match="other users of this machine can read it") as caught:
        KerberosLogin(FLOWS, keytab).check()
    assert (caught.value.code, caught.value.remedy) == ("file-open", f"chmod 600 {keytab}")


def test_a_keytab_that_is_none_or_is_gone_is_told(keytab: Path) -> None:
    keytab.write_bytes(b"password")
    with pytest.raises(EnvironmentFault, match="is not a keytab") as caught:
        KerberosLogin(FLOWS, keytab).check()
    assert "password" not in str(caught.value)
    keytab.unlink()
    with pytest.raises(EnvironmentFault, match="cannot be read: No such file"):
        KerberosLogin(FLOWS, keytab).check()


def test_spark_gets_the_path_and_never_the_content(keytab: Path) -> None:
    launcher = YarnLauncher(keytab.parent / "node", cluster(keytab.parent, KerberosLogin(FLOWS, keytab)))
    settings = launcher._settings(order())
    assert (settings["spark.kerberos.principal"], settings["spark.kerberos.keytab"]) == (FLOWS, str(keytab))
    records = keytab.parent / "records"
    records.mkdir()
    command, environment = launcher._submission(order(), records, "tag")
    said = f"{settings} {command} {environment} {launcher._cluster}"
    assert "nobody-sees" not in said


def test_a_flow_may_bring_a_login_of_the_same_user(keytab: Path) -> None:
    check_login(order(principal=FLOWS, keytab=str(keytab)), cluster(keytab.parent, KerberosLogin("flows/a@EXAMPLE.COM", keytab)))
    check_login(order(principal=FLOWS, keytab=Secret(str(keytab), "x")), cluster(keytab.parent, KerberosLogin("flows@X", keytab)))
    with pytest.raises(EnvironmentFault, match="is the user ann in YARN, and this node manages the applications of flows"):
        check_login(order(principal="ann@X", keytab=str(keytab)), cluster(keytab.parent, KerberosLogin(FLOWS, keytab)))
    with pytest.raises(EnvironmentFault, match=r"sets only spark\.kerberos\.principal"):
        check_login(order(principal=FLOWS), cluster(keytab.parent, None))
    keytab.chmod(0o644)
    with pytest.raises(EnvironmentFault, match="other users"):
        check_login(order(principal=FLOWS, keytab=str(keytab)), cluster(keytab.parent, KerberosLogin(FLOWS, keytab)))


def test_nothing_is_started_with_a_keytab_that_has_gone(keytab: Path) -> None:
    launcher = YarnLauncher(keytab.parent / "node", cluster(keytab.parent, KerberosLogin(FLOWS, keytab)))
    keytab.unlink()
    with pytest.raises(EnvironmentFault, match="cannot be read"):
        launcher.start(order())
    assert not list((keytab.parent / "node" / "workers").iterdir())


@pytest.mark.parametrize("words", [["--yarn-principal", FLOWS], ["--yarn-keytab", "{keytab}"]])
def test_principal_and_keytab_need_each_other(keytab: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    node = ["server", "node", "--registry", "zk://127.0.0.1:1/x", "--insecure", "--launcher", "yarn", "--yarn-conf", str(keytab.parent)]
    with pytest.raises(SystemExit) as ended:
        main([*node, *[word.format(keytab=keytab) for word in words]])
    assert ended.value.code == 2
    assert "need each other" in capsys.readouterr().err


@pytest.mark.parametrize(("challenge", "code"), [("Negotiate", "yarn-kerberos"), ('Basic realm="x"', "yarn-refused")])
def test_a_page_that_asks_for_a_ticket_is_told(challenge: str, code: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", challenge)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with served_by(Handler) as web, pytest.raises(EnvironmentFault) as caught:
        ResourceManagers([web]).check_active()
    assert caught.value.code == code
    assert ("SPNEGO" in caught.value.message) == (code == "yarn-kerberos")


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            'Exception in thread "main" org.apache.hadoop.security.KerberosAuthException: failure to login: for principal: a@X from keytab '
            "/k javax.security.auth.login.LoginException: "
            "Integrity check on decrypted field failed (31) - PREAUTH_FAILED\n",
            "the Kerberos login failed: Integrity check on decrypted field failed (31) - PREAUTH_FAILED; check --yarn-principal",
        ),
        (
            "java.io.IOException: org.apache.hadoop.security.AccessControlException: Client cannot authenticate via:[TOKEN, KERBEROS]\n",
            "the cluster asks for a Kerberos login; name one with --yarn-principal",
        ),
    ],
)
def test_a_login_that_failed_is_told(output: str, said: str) -> None:
    assert submission_fault(output).startswith(said)
