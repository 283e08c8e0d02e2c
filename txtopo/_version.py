"""The version of this release, for the audit, the commands and `txtopo.__version__`."""

__version__ = "0.1.0"
