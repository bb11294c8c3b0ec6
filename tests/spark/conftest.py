"""The session and the flow folders of these tests stand in tests/conftest.py, which other folders share."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conftest import FlowFolder as FlowFolder
