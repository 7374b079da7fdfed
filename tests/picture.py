"""The picture of the dashboard in the documentation: `make picture`.

It fills a new store with the demo and photographs the page of one of its users.
"""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import ViewportSize

from kemem.runtime import system_clock
from kemem.serve.demo.world import fill, read_world
from kemem.settings import load
from tests.browser import running_chromium, visitor
from tests.server import running_server

SIZE: ViewportSize = {"width": 1280, "height": 1000}


def take_picture(path: Path) -> None:
    """Write the picture to a file."""
    with TemporaryDirectory() as folder:
        home, now = Path(folder) / "data", system_clock()
        asyncio.run(fill(read_world(now), load(data_dir=home), now, lambda _: None))
        with (
            running_server(home) as server,
            running_chromium() as browser,
            visitor(browser, server.url, "en") as someone,
        ):
            someone.page.set_viewport_size(SIZE)
            someone.open("/user?user_id=grace").screenshot(path=path)


if __name__ == "__main__":
    take_picture(Path(sys.argv[1]))
