"""Programs of other people, as they use txtopo: mypy checks them as strictly as it can, nobody runs them."""
