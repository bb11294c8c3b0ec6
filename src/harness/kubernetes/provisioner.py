"""Volumes for claims: a default storage class whose volumes are folders of this machine, made as soon as they are claimed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from harness.kubernetes.api import ApiError
from scribengin.core.storage import make_folder

if TYPE_CHECKING:
    from pathlib import Path

    from harness.kubernetes.api import ApiClient, Json

CLASS = "folders"
_CLAIMS = "/api/v1/persistentvolumeclaims"
_AGAIN_S = 0.5


class VolumeProvisioner:
    """A thread that follows the claims of a cluster. The folders stay when the claims are deleted."""

    def __init__(self, api: ApiClient, folder: Path) -> None:
        """Create the storage class, and start the thread.

        Args:
            api: a client that may do everything.
            folder: the folder of all volumes.

        Raises:
            ApiError: the class cannot be created.
        """
        self._api = api
        self._folder = folder
        self._closed = threading.Event()
        api.create(
            "/apis/storage.k8s.io/v1/storageclasses",
            {
                "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
                "provisioner": "harness/folders",
                "reclaimPolicy": "Retain",
            },
        )
        threading.Thread(target=self._run, name="volume-provisioner", daemon=True).start()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                listed = self._api.get(_CLAIMS)
                for claim in listed["items"]:
                    self._provide(claim)
                for kind, claim in self._api.watch(_CLAIMS, listed["metadata"]["resourceVersion"]):
                    if kind in ("ADDED", "MODIFIED"):
                        self._provide(claim)
            except ApiError:  # the API server was restarted, or this cluster ends
                self._closed.wait(_AGAIN_S)

    def _provide(self, claim: Json) -> None:
        """Create the volume of a claim that waits for one. Raises ApiError."""
        meta, spec = claim["metadata"], claim["spec"]
        if spec.get("storageClassName") != CLASS or spec.get("volumeName") or "deletionTimestamp" in meta:
            return
        name = f"pvc-{meta['uid']}"
        folder = self._folder / meta["namespace"] / meta["name"]
        make_folder(folder)
        content = {
            "metadata": {"name": name},
            "spec": {
                "storageClassName": CLASS,
                "accessModes": spec["accessModes"],
                "capacity": spec["resources"]["requests"],
                "hostPath": {"path": str(folder)},
                "claimRef": {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        }
        try:
            self._api.create("/api/v1/persistentvolumes", content)
        except ApiError as error:
            if error.status != 409:  # it was made for an earlier event
                raise

    def close(self) -> None:
        """End the thread, as soon as its client is closed too."""
        self._closed.set()
