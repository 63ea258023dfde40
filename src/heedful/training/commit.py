"""Which commit of heedful made a run, where it runs from a checkout: one version has many."""

import os
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent.parent.parent  # of heedful, if it is one


def commit_of(checkout: Path = CHECKOUT) -> str | None:
    """The commit, with "-dirty" where files were changed since; None where nobody can say."""
    if not (checkout / ".git").exists():  # git would look further up, and find the repository of somebody else
        return None
    command = ["git", "-C", str(checkout), "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        found = subprocess.run(
            [*command, "--exclude=*"],  # no tag in its place
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},  # of another one
        )
    except (OSError, subprocess.SubprocessError):  # no git, or one that will not look into this folder
        return None
    return found.stdout.strip() or None
