"""Every setting of the daemon: names, defaults, and where values come from.

Precedence: defaults < file (TOML) < environment < flags. `LIONAGI_*` variables are never read.
"""

from .changes import Difference, differences, is_live, settings_table
from .files import read_named, read_private
from .load import description_of, flag_names, is_switch, load_settings
from .maintenance import Maintenance
from .model import DELIVER_TO, PAYLOAD, Delivery, Settings, is_loopback, split_address
from .text import config_text, effective_json, effective_text, put_table
from .tokens import SCOPES, Rights, Token

__all__ = [
    "DELIVER_TO",
    "PAYLOAD",
    "SCOPES",
    "Delivery",
    "Difference",
    "Maintenance",
    "Rights",
    "Settings",
    "Token",
    "config_text",
    "description_of",
    "differences",
    "effective_json",
    "effective_text",
    "flag_names",
    "is_live",
    "is_loopback",
    "is_switch",
    "load_settings",
    "put_table",
    "read_named",
    "read_private",
    "settings_table",
    "split_address",
]
