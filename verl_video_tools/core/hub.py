"""Where a model is: a folder of this machine, or a name on the Hugging Face hub. Decided before anything is loaded.

Libraries that are given a name which is neither ask the hub again and again, for minutes where there is no network.
"""

from __future__ import annotations

import re
from pathlib import Path

from verl_video_tools.core.errors import UsageError

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""`owner/name`."""

ANSWER_SECONDS = 5.0
"""Time for the hub to say whether it has a model."""

_CACHED_FILES = ("config.json", "preprocessor_config.json", "processor_config.json", "tokenizer_config.json")


def locate_model(name: str) -> str:
    """What to load a model, or its processor, from: the name itself, or a folder of the hub's cache if the hub cannot
    be asked.

    The hub is asked once, for at most `ANSWER_SECONDS`; not where HF_HUB_OFFLINE is set.

    Raises:
        UsageError: it is neither a folder nor a name of the form `owner/name`, the hub has no such model, or the hub
            cannot be asked and its cache does not have it.
    """
    if name and Path(name).is_dir():
        return name
    if not HUB_NAME.fullmatch(name):
        what = "a file" if Path(name).is_file() else "no folder here"
        raise UsageError(f"model {name!r} is {what}; give the folder of a model, or its name on the hub as owner/name")
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    if constants.HF_HUB_OFFLINE:
        return _cached(name, "HF_HUB_OFFLINE is set")
    try:
        HfApi().model_info(name, timeout=ANSWER_SECONDS)
    except GatedRepoError as error:
        return _cached(name, "the hub asks for a token with access to it (`hf auth login`)", error)
    except RepositoryNotFoundError as error:
        return _cached(name, "the hub has no public model of that name", error)
    except HfHubHTTPError as error:  # the hub or a proxy is in trouble
        return _cached(name, f"the hub gave no answer ({_first_line(error)})", error)
    except Exception as error:  # of the HTTP library below the hub's client, whichever that is
        return _cached(name, f"the hub cannot be reached ({_first_line(error)})", error)
    return name


def _cached(name: str, reason: str, cause: Exception | None = None) -> str:
    """Its folder in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    for file in _CACHED_FILES:
        path = try_to_load_from_cache(name, file)
        if isinstance(path, str):
            return str(Path(path).parent)
    raise UsageError(
        f"model {name!r} is no folder here and not in the cache of the Hugging Face hub, and {reason}; give the folder "
        "of a model, or download it first: hf download " + name
    ) from cause


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
