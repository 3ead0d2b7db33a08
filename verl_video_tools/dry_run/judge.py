"""Whether a judge can judge. Import-light: `vvt doctor` asks it as well, also where packages are missing."""

from __future__ import annotations

import asyncio

from verl_video_tools.core.check import Check, Status, one_line
from verl_video_tools.core.errors import VideoToolsError
from verl_video_tools.core.pages import page
from verl_video_tools.services.config import JudgeConfig

JUDGE_FIX = f"start the server, or correct the address, the model's name or the key ({page('judge')})"


def judge_checks(config: JudgeConfig) -> list[Check]:
    """Whether a judge can be reached, serves its model, and tells a right answer from a wrong one."""
    try:
        from verl_video_tools.services.judge import examine_judge

        findings = asyncio.run(examine_judge(config))
    except (VideoToolsError, ImportError) as error:
        return [Check("judge", "options", Status.FAILED, detail=one_line(error), fix=JUDGE_FIX)]
    return [
        Check("judge", finding.name, Status.FAILED, finding.found, " ".join(finding.fault.split()), JUDGE_FIX)
        if finding.fault
        else Check("judge", finding.name, Status.OK, finding.found)
        for finding in findings
    ]
