# SPDX-License-Identifier: Apache-2.0
"""What every table of the configuration has in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the file: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
