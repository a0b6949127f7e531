"""The daemon that owns one lionstate store and serves it over a Unix socket or HTTP."""
