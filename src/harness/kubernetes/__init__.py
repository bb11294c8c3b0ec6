"""A real Kubernetes for tests: its own API server, store, controllers and scheduler, and nodes whose pods run as processes of this machine.

It needs neither root nor containers. The control plane is built from Kubernetes' sources once (program.py); the kubelet is written here, so
that a test decides what goes wrong on a node.

    with KubeCluster(tmp_path / "kube") as cluster, ScriptedKubelet(cluster, entrypoints={"spark": spark_entrypoint}) as node:
        cluster.create_namespace("flows")
        cluster.api.create("/api/v1/namespaces/flows/pods", {
            "metadata": {"name": "one"},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "any", "command": ["python", "-c", "print('hello')"]}],
            },
        })
        os.environ["KUBECONFIG"] = str(cluster.kubeconfig)  # of an administrator
        config = cluster.service_account_config("flows", "default")  # of a service account, with the rights of its roles only
        node.oom("one", "flows")  # or evict, kill_container, freeze and thaw; node.missing_images.add("no-such-image")
        cluster.kill("kube-apiserver")  # and restart

What differs from a usual cluster, for programs in pods:

- A volume is a folder of this machine. Its mount path is replaced wherever the specification names it, and in ConfigMaps and Secrets; a
  program with the path in its own code does not find it (volumes.py). The token of the service account is in the file that KUBECONFIG
  names.
- All pods have the address 127.0.0.1, so two that listen on one port meet. A Service has no DNS name, and nothing forwards to its address.
- Memory and cores count for the scheduler only. Mounted ConfigMaps and tokens are not renewed. Init containers that restart (sidecars),
  lifecycle hooks and `exec` do not exist.
- A claim without a storage class of its own gets a folder (provisioner.py).
"""

from __future__ import annotations

from harness.kubernetes.api import ApiClient, ApiError
from harness.kubernetes.cluster import KubeCluster
from harness.kubernetes.kubelet import ScriptedKubelet
from harness.kubernetes.spark_image import spark_entrypoint

__all__ = ["ApiClient", "ApiError", "KubeCluster", "ScriptedKubelet", "spark_entrypoint"]
