# SPDX-License-Identifier: Apache-2.0
"""The one configuration file: /etc/slurm-coloc/coloc.toml, or the file that $COLOC_CONFIG names.

Every field carries its unit and a description, so `coloc config show --reference` writes the
reference from this package, a file for each group of tables. An unknown key is an error: a typing
mistake must not change a cluster.
"""

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field, ValidationError, model_validator

from slurm_coloc.config.base import Section
from slurm_coloc.config.daemon import DaemonConfig, Mode, ModeConfig, ModeRule, NetworkConfig
from slurm_coloc.config.gpus import FenceConfig, GateConfig, PoolConfig, SharingConfig, SharingRule
from slurm_coloc.config.jobs import (
    BlameConfig,
    EstimateConfig,
    IdleConfig,
    RecoveryConfig,
    SlotConfig,
    SlotRule,
)
from slurm_coloc.config.metrics import MetricsConfig
from slurm_coloc.config.nodes import AgentConfig, HooksConfig
from slurm_coloc.config.placement import PlacementConfig, SlowdownConfig
from slurm_coloc.errors import ConfigError

__all__ = [
    "DEFAULT_PATH",
    "AgentConfig",
    "BlameConfig",
    "Config",
    "DaemonConfig",
    "EstimateConfig",
    "FenceConfig",
    "GateConfig",
    "HooksConfig",
    "IdleConfig",
    "MetricsConfig",
    "Mode",
    "ModeConfig",
    "ModeRule",
    "NetworkConfig",
    "PlacementConfig",
    "PoolConfig",
    "RecoveryConfig",
    "Section",
    "SharingConfig",
    "SharingRule",
    "SlotConfig",
    "SlotRule",
    "SlowdownConfig",
    "config_path",
    "load_config",
    "parse_config",
]

DEFAULT_PATH = Path("/etc/slurm-coloc/coloc.toml")


class Config(Section):
    """The whole file."""

    version: Literal[1] = Field(1, description="Version of this file's layout.")
    daemon: DaemonConfig = DaemonConfig()
    mode: ModeConfig = ModeConfig()
    pool: PoolConfig = PoolConfig()
    estimate: EstimateConfig = EstimateConfig()
    recovery: RecoveryConfig = RecoveryConfig()
    blame: BlameConfig = BlameConfig()
    slots: SlotConfig = SlotConfig()
    idle: IdleConfig = IdleConfig()
    hooks: HooksConfig = HooksConfig()
    sharing: SharingConfig = SharingConfig()
    fence: FenceConfig = FenceConfig()
    gate: GateConfig = GateConfig()
    agent: AgentConfig = AgentConfig()
    metrics: MetricsConfig = MetricsConfig()
    network: NetworkConfig = NetworkConfig()
    placement: PlacementConfig = PlacementConfig()
    slowdown: SlowdownConfig = SlowdownConfig()

    @model_validator(mode="after")
    def _idle_is_measured(self) -> "Config":
        cancels = self.idle.cancel_after_s or self.idle.cancel_interactive_after_s
        if cancels and not (self.agent.idle_after_s and self.agent.sample):
            raise ValueError(
                "idle jobs are to be cancelled, but agent.idle_after_s = 0 or"
                " agent.sample = false, so that none is measured"
            )
        return self


def config_path() -> Path:
    """The file in force: $COLOC_CONFIG, else /etc/slurm-coloc/coloc.toml."""
    named = os.environ.get("COLOC_CONFIG")
    return Path(named) if named else DEFAULT_PATH


def parse_config(data: dict[str, Any], where: str) -> Config:
    """Check a parsed TOML document; raises ConfigError naming every wrong key of ``where``."""
    try:
        return Config.model_validate(data)
    except ValidationError as err:
        raise ConfigError(f"{where}: {'; '.join(wrong_keys(err))}") from err


def wrong_keys(err: ValidationError) -> list[str]:
    """A line for each wrong key; of an unknown one with the key that was probably meant."""
    found = []
    for item in err.errors():
        place = [str(part) for part in item["loc"]]
        text = item["msg"]
        if item["type"] == "extra_forbidden":
            near = difflib.get_close_matches(place[-1], _keys(place[:-1]), 1)
            text = "no such key" + (f"; did you mean {near[0]}?" if near else "")
        found.append(f"{'.'.join(place)}: {text}")
    return found


def _keys(place: list[str]) -> list[str]:
    """The keys of the table at ``place``, as the file names them."""
    model: Any = Config
    for part in place:
        if part.isdigit():
            continue
        field = next(
            (one for key, one in model.model_fields.items() if part in (key, one.alias)), None
        )
        if field is None:
            return []
        kinds = [field.annotation, *get_args(field.annotation)]
        model = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
        if model is None:
            return []
    return [field.alias or key for key, field in model.model_fields.items()]


def load_config(path: Path | None = None) -> Config:
    """Read the configuration.

    With no ``path`` and no file at the default place the built-in defaults are in force (mode
    observe). A file that was named must exist. Raises ConfigError.
    """
    chosen = path or config_path()
    try:
        text = chosen.read_bytes().decode("utf-8")
    except FileNotFoundError:
        if path is None and "COLOC_CONFIG" not in os.environ:
            return Config()
        raise ConfigError(f"{chosen}: no such file") from None
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"{chosen}: cannot be read: {err}") from err
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise ConfigError(f"{chosen}: not TOML: {err}") from err
    return parse_config(data, str(chosen))
