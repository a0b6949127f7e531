"""Every setting of the daemon: names, defaults, and where values come from.

Precedence: defaults < file (TOML) < environment < flags. `LIONAGI_*` variables are never read.
"""

from .load import flag_names, load_settings
from .model import Delivery, Maintenance, Settings, is_loopback, split_address
from .text import config_text, effective_text, mask_url

__all__ = [
    "Delivery",
    "Maintenance",
    "Settings",
    "config_text",
    "effective_text",
    "flag_names",
    "is_loopback",
    "load_settings",
    "mask_url",
    "split_address",
]
