"""Every setting of the daemon: names, defaults, and where values come from.

Precedence: defaults < file (TOML) < environment < flags. `LIONAGI_*` variables are never read.
"""

from .load import description_of, flag_names, is_switch, load_settings
from .maintenance import Maintenance
from .model import Delivery, Settings, is_loopback, split_address
from .text import config_text, effective_text, mask_url

__all__ = [
    "Delivery",
    "Maintenance",
    "Settings",
    "config_text",
    "description_of",
    "effective_text",
    "flag_names",
    "is_loopback",
    "is_switch",
    "load_settings",
    "mask_url",
    "split_address",
]
