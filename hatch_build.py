"""The build hook of the package: builds the control page and puts it into wheels and source archives."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent / "scripts"))
import build_page


class PageBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the page unless it is up to date or `RETINUE_SKIP_PAGE` is set."""

    def dependencies(self) -> list[str]:
        return [] if build_page.is_skipped() or build_page.is_fresh() else [build_page.NODE_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not build_page.is_skipped():
            try:
                build_page.build()
            except (build_page.PageNotBuilt, OSError) as error:
                # Everything but the page works without it, and the gateway says how to get it.
                self.app.display_warning(f"The control page was not built: {error}")
        if build_page.DIST.is_dir() and version != "editable":
            target = "retinue/gateway/page" if self.target_name == "wheel" else "page/dist"
            build_data["force_include"][str(build_page.DIST)] = target
