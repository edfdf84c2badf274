"""tools/run.py apart from QEMU: what several runs of one process do at the same time."""

import concurrent.futures
import os

import run


def test_link_side_by_side(tmp_path):
    """Two machines that end at the same moment both point the link at their log, and neither fails."""
    link = tmp_path / "latest.log"

    def point(i):
        for n in range(200):
            run.link_to(str(link), f"run-{i}-{n}.log")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(point, i) for i in range(8)]:
            done.result()
    assert os.readlink(link).endswith("-199.log")
    assert os.listdir(tmp_path) == ["latest.log"]
