"""Kerberos logins of workers in YARN: options, files, and what is told."""

from __future__ import annotations

import struct
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.kdc import REALM, Kdc
from scribengin.cli.main import main
from scribengin.connectors.hdfs.path import HdfsPath
from scribengin.core.errors import EnvironmentFault
from scribengin.core.process import within
from scribengin.core.secret import Secret
from scribengin.embedded.hdfs import write_site
from scribengin.launch.contract import LaunchOrder, ObservedWorker
from scribengin.launch.yarn import YarnLauncher, check_login, submission_fault
from scribengin.launch.yarn_cluster import KerberosLogin, ResourceManagers, YarnCluster, site_settings
from tests.served import served_by

if TYPE_CHECKING:
    from scribengin.embedded.yarn import Yarn

PROGRAM = Path(__file__).with_name("yarn_program.py")
WITHIN_S = 400.0
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


def keytab_of(name: str) -> bytes:
    """A keytab with a key (aes256-cts-hmac-sha1-96) that no KDC knows."""

    def counted(data: bytes) -> bytes:
        return struct.pack(">h", len(data)) + data

    entry = struct.pack(">h", 1) + counted(REALM.encode()) + counted(name.encode())
    entry += struct.pack(">iibh", 1, 0, 1, 18) + counted(bytes(range(32)))
    return b"\x05\x02" + struct.pack(">i", len(entry)) + entry


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_workers_log_in_at_a_real_kdc(yarn: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The KDC is real; YARN and HDFS are not secured, and clients agree to that after their login."""
    with Kdc(tmp_path / "kdc", ["flows", "rm/localhost"]) as kdc:
        java = f"-Djava.security.krb5.conf={kdc.krb5_conf}"
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", java)
        conf = tmp_path / "conf"
        conf.mkdir()
        secured = {"hadoop.security.authentication": "kerberos", "ipc.client.fallback-to-simple-auth-allowed": "true"}
        write_site(conf / "core-site.xml", {**site_settings(yarn.conf / "core-site.xml"), **secured})
        write_site(conf / "hdfs-site.xml", site_settings(yarn.conf / "hdfs-site.xml"))
        settings = site_settings(yarn.conf / "yarn-site.xml")
        write_site(conf / "yarn-site.xml", {**settings, "yarn.resourcemanager.principal": f"rm/localhost@{REALM}"})
        home = HdfsPath.of(f"{yarn.hdfs.uri}/user/flows")
        home.make()
        home._asked(lambda raw: raw.set_owner(home.inside, "flows", "flows"), "failed to change")
        wrong = tmp_path / "wrong.keytab"
        wrong.write_bytes(keytab_of("flows"))
        wrong.chmod(0o600)

        def run(worker: str, principal: str, keytab: Path) -> ObservedWorker:
            launcher = YarnLauncher(tmp_path / "node", YarnCluster.of(conf, login=KerberosLogin(f"{principal}@{REALM}", keytab)))
            argv = (sys.executable, str(PROGRAM), str(tmp_path / f"{worker}.diary"), "count=1000", "exit=7")
            small = {"spark.driver.memory": "512m", "spark.driver.memoryOverhead": "256m", "spark.executor.memoryOverhead": "256m"}
            in_containers = {f"spark.{name}.JAVA_TOOL_OPTIONS": java for name in ("yarn.appMasterEnv", "executorEnv")}
            launcher.start(LaunchOrder(worker, argv, memory_bytes=512 * 2**20, spark={**small, **in_containers}))
            assert within(WITHIN_S, lambda: launcher.observe()[0].is_over), [Path(path).read_text() for path in launcher.logs(worker)]
            (seen,) = launcher.observe()
            launcher.forget(worker)
            return seen

        assert "the Kerberos login failed: Unable to obtain password" in run("tweets.main-1", "nobody", kdc.keytab).reason
        assert "the Kerberos login failed: " in run("tweets.main-2", "flows", wrong).reason
        seen = run("tweets.main-3", "flows", kdc.keytab)
        assert (seen.state, seen.status) == ("exited", 7), seen
        assert "counted 1000\n" in (tmp_path / "tweets.main-3.diary").read_text(), "by an executor"
        applications = yarn.resource_manager.read("/ws/v1/cluster/apps")["apps"]["app"]
        assert [each["name"] for each in applications if each["user"] == "flows"] == ["tweets.main-3"]
        key = kdc.keytab.read_bytes()[-16:]
        said = [path for path in (tmp_path / "node").rglob("*") if path.is_file() and key in path.read_bytes()]
        assert not said, "no record or log has a key"
